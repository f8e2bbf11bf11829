"""NumPy and NIfTI files of every kind, through `convert`, against numpy and nibabel."""
import gzip
import io
import json
import zipfile

import nibabel
import numpy as np
import pytest
import tifffile

from processes import peak_kib

NIFTI_TYPES = ["uint8", "int8", "uint16", "int16", "uint32", "int32", "float32", "float64"]


def random_array(draw, dtype, shape=None):
    generator = np.random.default_rng(draw.randrange(2**32))
    shape = shape or tuple(draw.randrange(1, 14) for _ in range(3))
    if np.dtype(dtype).kind == "f":
        return generator.normal(0, 100, shape).astype(dtype)
    if np.dtype(dtype).kind == "b":
        return generator.random(shape) < 0.5
    info = np.iinfo(dtype)
    return generator.integers(max(info.min, -2**31), min(info.max, 2**31 - 1), shape, dtype=dtype, endpoint=True)


def read_through(voxloom, path, tmp_path, *options):
    """What the program makes of a file, as numpy reads it."""
    out = tmp_path / "read-through.npy"
    voxloom("convert", path, out, *options)
    return np.load(out)


def random_affine(draw):
    """A rotation (any axis order and sign), spacing and origin, as a scanner gives it."""
    generator = np.random.default_rng(draw.randrange(2**32))
    rotation, _ = np.linalg.qr(generator.normal(size=(3, 3)))
    affine = np.eye(4)
    affine[:3, :3] = rotation * generator.uniform(0.4, 4, 3)
    affine[:3, 3] = generator.uniform(-100, 100, 3)
    return affine


# ---- NumPy ----

@pytest.mark.parametrize("dtype", NIFTI_TYPES + ["bool", "int64", "uint64", "float16"])
@pytest.mark.parametrize("byte_order", "<>")
@pytest.mark.parametrize("order", "CF")
def test_npy_of_every_type_and_order(voxloom, draw, tmp_path, dtype, byte_order, order):
    shape = tuple(draw.randrange(1, 14) for _ in range(draw.choice([3, 4])))
    array = random_array(draw, dtype, shape)
    np.save(tmp_path / "a.npy", np.asarray(array, dtype=np.dtype(dtype).newbyteorder(byte_order), order=order))
    got = read_through(voxloom, tmp_path / "a.npy", tmp_path)
    expected_type = {"bool": "uint8", "int64": "int32", "uint64": "uint32", "float16": "float32"}.get(dtype, dtype)
    assert got.dtype == expected_type
    expected = array if array.ndim == 3 or array.shape[0] > 1 else array[0]  # one channel is a plain volume
    assert np.array_equal(got, expected)


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_npy_header_versions(voxloom, draw, tmp_path, version):
    array = random_array(draw, "int16")
    with open(tmp_path / "a.npy", "wb") as file:
        np.lib.format.write_array(file, array, version=version)
    assert np.array_equal(read_through(voxloom, tmp_path / "a.npy", tmp_path), array)


def test_int64_that_does_not_fit_is_refused(voxloom, tmp_path):
    array = np.zeros((2, 3, 4), "int64")
    array[1, 2, 3] = 2**40
    np.save(tmp_path / "a.npy", array)
    result = voxloom("convert", tmp_path / "a.npy", tmp_path / "b.npy", check=False)
    assert result.returncode == 1 and str(2**40) in result.stderr and not (tmp_path / "b.npy").exists()


@pytest.mark.parametrize("array, word", [(np.zeros((2, 3)), "axes"), (np.zeros((1, 1, 1, 1, 1)), "axes"),
                                         (np.zeros((2, 2, 2), "complex64"), "c8"),
                                         (np.zeros((2, 2, 2), [("a", "i4")]), "record")])
def test_arrays_that_are_no_volumes_are_refused(voxloom, tmp_path, array, word):
    np.save(tmp_path / "a.npy", array)
    result = voxloom("inspect", tmp_path / "a.npy", check=False)
    assert result.returncode == 1 and word in result.stderr and "a.npy" in result.stderr


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz_names_its_arrays(voxloom, draw, tmp_path, save):
    image, label = random_array(draw, "float32"), random_array(draw, "uint8")
    save(tmp_path / "a.npz", image=image, label=label)
    assert np.array_equal(read_through(voxloom, f"{tmp_path}/a.npz:image", tmp_path), image)
    assert np.array_equal(read_through(voxloom, f"{tmp_path}/a.npz:label", tmp_path), label)
    result = voxloom("inspect", tmp_path / "a.npz", check=False)
    assert result.returncode == 1 and "image" in result.stderr and "label" in result.stderr
    result = voxloom("inspect", f"{tmp_path}/a.npz:mask", check=False)
    assert result.returncode == 1 and "mask" in result.stderr and "label" in result.stderr
    save(tmp_path / "one.npz", only=label)
    assert np.array_equal(read_through(voxloom, tmp_path / "one.npz", tmp_path), label)


def test_npz_with_zip64_fields(voxloom, draw, tmp_path):
    array = random_array(draw, "uint16")
    content = io.BytesIO()
    np.save(content, array)
    with zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        with archive.open("a.npy", "w", force_zip64=True) as member:
            member.write(content.getvalue())
    assert np.array_equal(read_through(voxloom, tmp_path / "a.npz", tmp_path), array)


@pytest.mark.parametrize("codec", ["deflate", "none"])
def test_numpy_reads_our_npz(voxloom, draw, tmp_path, codec):
    array = random_array(draw, "int32")
    np.save(tmp_path / "a.npy", array)
    voxloom("convert", tmp_path / "a.npy", tmp_path / "b.npz", "--codec", codec)
    with np.load(tmp_path / "b.npz") as archive:
        assert archive.files == ["volume"] and np.array_equal(archive["volume"], array)
    assert zipfile.ZipFile(tmp_path / "b.npz").testzip() is None


def test_a_damaged_npz_member_is_noticed(voxloom, tmp_path):
    np.savez_compressed(tmp_path / "a.npz", a=np.arange(4000, dtype="uint16").reshape(10, 20, 20))
    content = bytearray((tmp_path / "a.npz").read_bytes())
    content[len(content) // 2] ^= 0x55
    (tmp_path / "a.npz").write_bytes(content)
    result = voxloom("convert", tmp_path / "a.npz", tmp_path / "b.npy", check=False)
    assert result.returncode == 1 and "a.npz" in result.stderr and not (tmp_path / "b.npy").exists()


# ---- NIfTI ----

def make_nifti(draw, dtype, kind, byte_order, channels=1):
    shape = tuple(draw.randrange(2, 14) for _ in range(3)) + ((channels,) if channels > 1 else ())
    array = random_array(draw, dtype, shape)
    header = kind.header_class(endianness=byte_order)
    header.set_data_dtype(np.dtype(dtype).newbyteorder(byte_order))
    image = kind(array, random_affine(draw), header)
    return image, array


@pytest.mark.parametrize("dtype", NIFTI_TYPES)
@pytest.mark.parametrize("kind", [nibabel.Nifti1Image, nibabel.Nifti2Image])
@pytest.mark.parametrize("byte_order", "<>")
def test_nifti_of_every_type_and_byte_order(voxloom, draw, tmp_path, dtype, kind, byte_order):
    image, array = make_nifti(draw, dtype, kind, byte_order, draw.choice([1, 3]))
    path = tmp_path / draw.choice(["a.nii", "a.nii.gz"])
    nibabel.save(image, path)
    got = read_through(voxloom, path, tmp_path)
    assert got.dtype == dtype and np.array_equal(got, array.T)


@pytest.mark.parametrize("suffix", [".nii", ".nii.gz"])
def test_nibabel_reads_our_nifti(voxloom, draw, tmp_path, suffix):
    image, array = make_nifti(draw, "int16", nibabel.Nifti1Image, ">", draw.choice([1, 2]))
    image.header.set_slope_inter(0.25, -7)
    nibabel.save(image, tmp_path / "a.nii")
    original = nibabel.load(tmp_path / "a.nii")
    voxloom("convert", tmp_path / "a.nii", tmp_path / f"b{suffix}")
    back = nibabel.load(tmp_path / f"b{suffix}")
    assert back.get_data_dtype() == np.int16
    assert np.array_equal(np.asarray(back.dataobj.get_unscaled()), np.asarray(original.dataobj.get_unscaled()))
    assert np.array_equal(back.get_fdata(), original.get_fdata())
    assert np.array_equal(back.affine, original.affine)
    assert np.allclose(back.header.get_zooms()[:3], original.header.get_zooms()[:3])
    assert back.header.get_sform(coded=True)[1] > 0


def test_scaled_voxels_become_real_values_where_a_format_has_no_scale(voxloom, draw, tmp_path):
    image, _ = make_nifti(draw, "int16", nibabel.Nifti1Image, "<")
    image.header.set_slope_inter(0.5, 3)
    nibabel.save(image, tmp_path / "a.nii")
    got = read_through(voxloom, tmp_path / "a.nii", tmp_path)
    assert got.dtype == np.float32
    assert np.allclose(got, nibabel.load(tmp_path / "a.nii").get_fdata().T, rtol=1e-6)


def edit_header(path, offset, value):
    content = bytearray(path.read_bytes())
    raw = value.tobytes()
    content[offset:offset + len(raw)] = raw
    path.write_bytes(content)


@pytest.mark.parametrize("slope", [0, np.nan])
def test_slope_zero_or_nan_means_none(voxloom, draw, tmp_path, slope):
    image, array = make_nifti(draw, "int16", nibabel.Nifti1Image, "<")
    path = tmp_path / "a.nii"
    nibabel.save(image, path)
    edit_header(path, 112, np.array([slope, 5], "<f4"))
    got = read_through(voxloom, path, tmp_path)
    assert got.dtype == np.int16 and np.array_equal(got, array.T)


def test_any_vox_offset_and_header_extensions(voxloom, draw, tmp_path):
    image, array = make_nifti(draw, "uint16", nibabel.Nifti1Image, "<")
    image.header.extensions.append(nibabel.nifti1.Nifti1Extension("comment", b"x" * draw.randrange(1, 300)))
    nibabel.save(image, tmp_path / "a.nii")
    assert np.array_equal(read_through(voxloom, tmp_path / "a.nii", tmp_path), array.T)
    content = (tmp_path / "a.nii").read_bytes()
    voxels = content[-array.nbytes:]
    gap = draw.randrange(1, 5000)  # no multiple of 16
    (tmp_path / "b.nii").write_bytes(content[:352] + bytes(gap) + voxels)
    edit_header(tmp_path / "b.nii", 108, np.array([352 + gap], "<f4"))
    assert np.array_equal(read_through(voxloom, tmp_path / "b.nii", tmp_path), array.T)


@pytest.mark.parametrize("unit, factor", [("meter", 1000), ("mm", 1), ("micron", 1e-3), ("unknown", 1)])
def test_units_of_the_header(voxloom, draw, tmp_path, unit, factor):
    image, _ = make_nifti(draw, "uint8", nibabel.Nifti1Image, "<")
    image.header.set_xyzt_units(unit)
    nibabel.save(image, tmp_path / "a.nii")
    facts = json.loads(voxloom("inspect", tmp_path / "a.nii", "--json").stdout)
    assert np.allclose(facts["spacing"], np.array(image.header.get_zooms()[::-1]) * factor, rtol=1e-6)
    assert np.allclose(facts["affine"], image.affine[:3] * factor, rtol=1e-5, atol=1e-5 * factor)


def test_qform_where_there_is_no_sform(voxloom, draw, tmp_path):
    image, _ = make_nifti(draw, "uint8", nibabel.Nifti1Image, "<")
    image.set_qform(image.affine, code=1)
    image.set_sform(None, code=0)
    nibabel.save(image, tmp_path / "a.nii")
    facts = json.loads(voxloom("inspect", tmp_path / "a.nii", "--json").stdout)
    assert np.allclose(facts["affine"], nibabel.load(tmp_path / "a.nii").affine[:3], atol=1e-4)


def test_vector_axis_and_squeezed_axes(voxloom, draw, tmp_path):
    array = random_array(draw, "float32", (4, 5, 6, 1, 3))
    nibabel.save(nibabel.Nifti1Image(array, np.eye(4)), tmp_path / "a.nii")
    assert np.array_equal(read_through(voxloom, tmp_path / "a.nii", tmp_path), array[:, :, :, 0].T)
    nibabel.save(nibabel.Nifti1Image(array.reshape(4, 5, 6, 3, 1, 1), np.eye(4)), tmp_path / "b.nii")
    assert np.array_equal(read_through(voxloom, tmp_path / "b.nii", tmp_path), array[:, :, :, 0].T)
    nibabel.save(nibabel.Nifti1Image(np.zeros((4, 5, 6, 2, 3), "f4"), np.eye(4)), tmp_path / "c.nii")
    assert voxloom("inspect", tmp_path / "c.nii", check=False).returncode == 1


def test_header_and_image_pair(voxloom, draw, tmp_path):
    array = random_array(draw, "int16")
    nibabel.save(nibabel.Nifti1Pair(array, np.eye(4)), tmp_path / "a.img")
    for name in ("a.img", "a.hdr"):
        assert np.array_equal(read_through(voxloom, tmp_path / name, tmp_path), array.T)


@pytest.mark.parametrize("dtype", ["int64", "uint64", "complex64"])
def test_types_that_cannot_be_read_are_named(voxloom, tmp_path, dtype):
    nibabel.save(nibabel.Nifti1Image(np.zeros((2, 3, 4), dtype), np.eye(4), dtype=dtype), tmp_path / "a.nii")
    result = voxloom("inspect", tmp_path / "a.nii", check=False)
    assert result.returncode == 1 and dtype in result.stderr


def test_gzip_in_several_members(voxloom, draw, tmp_path):
    image, array = make_nifti(draw, "uint8", nibabel.Nifti1Image, "<")
    content = image.to_bytes()
    cut = draw.randrange(1, len(content))
    (tmp_path / "a.nii.gz").write_bytes(gzip.compress(content[:cut]) + gzip.compress(content[cut:]))
    assert np.array_equal(read_through(voxloom, tmp_path / "a.nii.gz", tmp_path), array.T)


# ---- orientation ----

def test_ras_is_the_closest_canonical_of_nibabel(voxloom, draw, tmp_path):
    for _ in range(12):
        image, _ = make_nifti(draw, "int16", nibabel.Nifti1Image, "<", draw.choice([1, 2]))
        nibabel.save(image, tmp_path / "a.nii")
        voxloom("convert", tmp_path / "a.nii", tmp_path / "b.nii", "--orientation", "RAS")
        expected = nibabel.as_closest_canonical(nibabel.load(tmp_path / "a.nii"))
        got = nibabel.load(tmp_path / "b.nii")
        assert np.array_equal(np.asarray(got.dataobj), np.asarray(expected.dataobj))
        assert np.allclose(got.affine, expected.affine, rtol=1e-5, atol=1e-4)
        assert nibabel.aff2axcodes(got.affine) == ("R", "A", "S")
        assert np.allclose(got.header.get_zooms()[:3], expected.header.get_zooms()[:3])


def test_axis_codes_are_those_of_nibabel(voxloom, draw, tmp_path):
    for _ in range(12):
        image, _ = make_nifti(draw, "uint8", nibabel.Nifti1Image, "<")
        nibabel.save(image, tmp_path / "a.nii")
        facts = json.loads(voxloom("inspect", tmp_path / "a.nii", "--json").stdout)
        assert facts["orientation"] == "".join(nibabel.aff2axcodes(image.affine))


def test_ras_needs_an_affine(voxloom, tmp_path):
    np.save(tmp_path / "a.npy", np.zeros((2, 3, 4), "uint8"))
    result = voxloom("convert", tmp_path / "a.npy", tmp_path / "b.nii", "--orientation", "RAS", check=False)
    assert result.returncode == 1 and not (tmp_path / "b.nii").exists()


# ---- real files ----

def test_odd_real_files_agree_with_nibabel(voxloom, shared, tmp_path):
    files = sorted((shared / "data" / "odd").glob("*.nii*"))
    assert files
    for path in files:
        image = nibabel.load(path)
        got = read_through(voxloom, path, tmp_path, "--dtype", "float64")
        assert np.allclose(got, image.get_fdata().squeeze().T, rtol=1e-12), path.name
        voxloom("convert", path, tmp_path / "back.nii.gz")
        back = nibabel.load(tmp_path / "back.nii.gz")
        assert np.allclose(back.affine, image.affine, rtol=1e-6, atol=1e-6), path.name
        assert np.allclose(back.get_fdata(), image.get_fdata().reshape(back.shape), rtol=1e-12), path.name


def test_hippocampus_agrees_with_nibabel(voxloom, shared, draw, tmp_path):
    files = sorted((shared / "data" / "hippocampus").glob("*/*.nii.gz"))
    assert files
    for path in draw.sample(files, 8):
        image = nibabel.load(path)
        got = read_through(voxloom, path, tmp_path)
        assert got.dtype == image.get_data_dtype() and np.array_equal(got, np.asarray(image.dataobj).T), path.name


# ---- convert ----

def test_dtype_rounds_to_nearest_and_refuses_what_does_not_fit(voxloom, tmp_path):
    values = np.array([0.4, 0.6, 254.6, -0.4], "float32").reshape(1, 2, 2)
    np.save(tmp_path / "a.npy", values)
    got = read_through(voxloom, tmp_path / "a.npy", tmp_path, "--dtype", "uint8")
    assert got.ravel().tolist() == [0, 1, 255, 0]
    np.save(tmp_path / "old.npy", np.ones((1, 1, 1)))
    before = (tmp_path / "old.npy").read_bytes()
    for bad in (255.6, -1, np.nan, np.inf):
        values[0, 0, 0] = bad
        np.save(tmp_path / "a.npy", values)
        result = voxloom("convert", tmp_path / "a.npy", tmp_path / "old.npy", "--dtype", "uint8", check=False)
        assert result.returncode == 1 and "uint8" in result.stderr and result.stdout == ""
        assert (tmp_path / "old.npy").read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.npy", "old.npy", "read-through.npy"]


def test_convert_holds_a_slab_not_the_volume(tmp_path):
    shape, volume_kib = (1024, 256, 256), 128 * 1024
    values = np.lib.format.open_memmap(tmp_path / "a.npy", "w+", "uint16", shape)  # its zeros take no room
    values[::97, 3] = np.arange(256)
    values.flush()
    program_kib = peak_kib("--version")
    for source, target in (("a.npy", "b.zarr"), ("b.zarr", "c.tif"), ("c.tif", "d.h5"), ("d.h5", "e.tif")):
        assert peak_kib("convert", tmp_path / source, tmp_path / target) - program_kib < volume_kib / 2, target
    assert np.array_equal(tifffile.imread(tmp_path / "e.tif"), values)


def test_dtype_applies_the_scale(voxloom, tmp_path):
    image = nibabel.Nifti1Image(np.arange(24, dtype="int16").reshape(2, 3, 4), np.eye(4))
    image.header.set_slope_inter(2, 10)
    nibabel.save(image, tmp_path / "a.nii")
    voxloom("convert", tmp_path / "a.nii", tmp_path / "b.nii", "--dtype", "uint8")
    got = nibabel.load(tmp_path / "b.nii")
    assert got.get_data_dtype() == np.uint8
    assert np.array_equal(got.get_fdata(), nibabel.load(tmp_path / "a.nii").get_fdata())


@pytest.mark.parametrize("options, word", [(("--dtype", "float17"), "float17"), (("--codec", "lzw"), "lzw"),
                                           (("--orientation", "LPS"), "LPS"), (("--chunk", "1,2"), "--chunk")])
def test_wrong_options_of_convert(voxloom, tmp_path, options, word):
    np.save(tmp_path / "a.npy", np.zeros((2, 3, 4), "uint8"))
    result = voxloom("convert", tmp_path / "a.npy", tmp_path / "b.npz", *options, check=False)
    assert result.returncode == 1 and word in result.stderr and not (tmp_path / "b.npz").exists()


def test_unknown_suffix_names_the_known_ones(voxloom, tmp_path):
    np.save(tmp_path / "a.npy", np.zeros((2, 3, 4), "uint8"))
    result = voxloom("convert", tmp_path / "a.npy", tmp_path / "b.jpeg", check=False)
    assert result.returncode == 1 and ".nii.gz" in result.stderr
