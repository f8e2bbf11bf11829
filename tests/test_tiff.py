"""TIFF against tifffile: what it writes we read, what we write it reads; damage is one clear sentence."""
import numpy
import pytest
import tifffile

TYPES = ["uint8", "int8", "uint16", "int16", "uint32", "int32", "float32", "float64"]
CODECS = [None, "lzw", "deflate", "adobe_deflate", "zstd", "packbits"]


def random_array(draw, shape, dtype):
    """Few values here, all bits there, so that codecs meet runs and noise; floats stay finite."""
    source = numpy.random.default_rng(draw.randrange(2**32))
    kind = numpy.dtype(dtype)
    if kind.kind == "f":
        array = source.standard_normal(shape).astype(kind)
    else:
        limits = numpy.iinfo(kind)
        array = source.integers(limits.min, limits.max, shape, dtype=kind, endpoint=True)
    array[source.random(shape) < draw.choice([0.0, 0.5, 0.99])] = 1
    return array


def random_predictor(draw, dtype, codec):
    if codec is None or codec == "packbits":
        return None
    return draw.choice([None, 3] if numpy.dtype(dtype).kind == "f" else [None, 2])


def random_write_options(draw, shape, dtype):
    codec = draw.choice(CODECS)
    options = {"compression": codec, "bigtiff": draw.random() < 0.3, "byteorder": draw.choice("<>"),
               "predictor": random_predictor(draw, dtype, codec), "photometric": draw.choice(["minisblack", "miniswhite"])}
    if draw.random() < 0.4:
        options["tile"] = (16 * draw.randint(1, 4), 16 * draw.randint(1, 4))
    elif draw.random() < 0.7:
        options["rowsperstrip"] = draw.randint(1, shape[1] + 3)
    if draw.random() < 0.3:
        options["metadata"] = None
    return options


def read_by_voxloom(voxloom, path, tmp_path):
    target = tmp_path / "read.npy"
    voxloom("convert", path, target)
    return numpy.load(target)


@pytest.mark.parametrize("dtype", TYPES)
def test_what_tifffile_writes_is_read(voxloom, draw, tmp_path, dtype):
    for trial in range(8):
        shape = (draw.randint(1, 5), draw.randint(2, 90), draw.randint(2, 90))  # tifffile drops axes of length 1
        array, options = random_array(draw, shape, dtype), random_write_options(draw, shape, dtype)
        path = tmp_path / f"{trial}.tif"
        tifffile.imwrite(path, array, **options)
        got = read_by_voxloom(voxloom, path, tmp_path)
        assert got.dtype == array.dtype and got.shape == array.shape, (shape, options)
        assert numpy.array_equal(got, array), (shape, options)


@pytest.mark.parametrize("codec", ["none", "lzw", "deflate", "zstd", "packbits"])
def test_what_is_written_tifffile_reads(voxloom, draw, tmp_path, codec):
    for dtype in TYPES:
        array = random_array(draw, (draw.randint(1, 4), draw.randint(1, 200), draw.randint(1, 200)), dtype)
        numpy.save(tmp_path / "in.npy", array)
        voxloom("convert", tmp_path / "in.npy", tmp_path / "out.tif", "--codec", codec)
        got = tifffile.imread(tmp_path / "out.tif")
        assert got.dtype == array.dtype and got.shape == array.shape
        assert numpy.array_equal(got, array), (dtype, array.shape)


def test_long_strips_of_every_kind_of_content_are_read(voxloom, draw, tmp_path):
    """The LZW table fills and is cleared many times; runs become strings of thousands of bytes."""
    source = numpy.random.default_rng(draw.randrange(2**32))
    contents = {
        "noise": source.integers(0, 256, (2, 300, 400), dtype=numpy.uint8),
        "few": source.integers(0, 3, (2, 300, 400), dtype=numpy.uint8),
        "zeros": numpy.zeros((2, 3000, 2000), numpy.uint8),
        "ramp": numpy.arange(2 * 300 * 400).reshape(2, 300, 400).astype(numpy.uint8),
        "blocks": numpy.repeat(numpy.repeat(source.integers(0, 3, (2, 30, 40), dtype=numpy.uint8), 10, 1), 10, 2),
    }
    for name, array in contents.items():
        tifffile.imwrite(tmp_path / f"{name}.tif", array, compression="lzw", rowsperstrip=array.shape[1])
        assert numpy.array_equal(read_by_voxloom(voxloom, tmp_path / f"{name}.tif", tmp_path), array), name
        voxloom("convert", tmp_path / f"{name}.tif", tmp_path / "again.tif", "--codec", "lzw")
        assert numpy.array_equal(tifffile.imread(tmp_path / "again.tif"), array), name


def test_imagej_stacks_of_one_directory_are_whole(voxloom, draw, tmp_path):
    array = random_array(draw, (6, 20, 30), "uint16")
    tifffile.imwrite(tmp_path / "ij.tif", array, imagej=True, truncate=True)
    with tifffile.TiffFile(tmp_path / "ij.tif") as file:
        assert len(file.pages) == 1
    assert numpy.array_equal(read_by_voxloom(voxloom, tmp_path / "ij.tif", tmp_path), array)
    tifffile.imwrite(tmp_path / "shaped.tif", array, truncate=True)
    assert numpy.array_equal(read_by_voxloom(voxloom, tmp_path / "shaped.tif", tmp_path), array)
    cut = (tmp_path / "ij.tif").read_bytes()[:-100]
    (tmp_path / "cut.tif").write_bytes(cut)
    failed = voxloom("convert", tmp_path / "cut.tif", tmp_path / "cut.npy", check=False)
    assert failed.returncode == 1 and "cut.tif" in failed.stderr and not (tmp_path / "cut.npy").exists()


@pytest.mark.parametrize("how, axes", [("shaped", ""), ("truncated", ""), ("ome", "CZYX"), ("ome", "ZCYX"),
                                       ("ome", "TZYX"), ("ome", "TYX"), ("imagej", "ZCYX")])
def test_channels_are_those_of_the_array_that_was_written(voxloom, draw, tmp_path, how, axes):
    """Channel, z, y, x, as .npy files of the same arrays are read; not one volume of all slices of all channels."""
    array = random_array(draw, (5, 11, 12) if axes == "TYX" else (3, 4, 11, 12), "uint16")
    path = tmp_path / ("a.ome.tif" if how == "ome" else "a.tif")
    tifffile.imwrite(path, array, photometric="minisblack", imagej=how == "imagej", truncate=how == "truncated",
                     metadata={"axes": axes} if axes else {})
    if axes == "TZYX":
        failed = voxloom("inspect", path, check=False)
        assert failed.returncode == 1 and "time series" in failed.stderr
        return
    expected = numpy.swapaxes(array, 0, 1) if axes == "ZCYX" else array
    assert numpy.array_equal(read_by_voxloom(voxloom, path, tmp_path), expected)


def test_an_array_of_five_axes_is_no_volume(voxloom, tmp_path):
    tifffile.imwrite(tmp_path / "a.tif", numpy.zeros((2, 3, 4, 8, 9), numpy.uint8), photometric="minisblack")
    assert voxloom("inspect", tmp_path / "a.tif", check=False).returncode == 1
    tifffile.imwrite(tmp_path / "b.tif", numpy.zeros((1, 1, 4, 8, 9), numpy.uint8), photometric="minisblack")
    assert "shape        4x8x9" in voxloom("inspect", tmp_path / "b.tif").stdout


def test_spacing_goes_both_ways(voxloom, draw, tmp_path):
    array = random_array(draw, (4, 8, 9), "uint8")
    tifffile.imwrite(tmp_path / "in.tif", array, imagej=True, resolution=(4.0, 2.0),
                     metadata={"spacing": 3.5, "unit": "um"})
    voxloom("convert", tmp_path / "in.tif", tmp_path / "out.tif")
    with tifffile.TiffFile(tmp_path / "out.tif") as file:
        assert file.imagej_metadata["unit"] == "mm"
        assert file.imagej_metadata["spacing"] == pytest.approx(0.0035)
        tags = file.pages[0].tags
        x, y = tags["XResolution"].value, tags["YResolution"].value
        assert x[0] / x[1] == pytest.approx(4000) and y[0] / y[1] == pytest.approx(2000)
        assert numpy.array_equal(file.asarray(), array)


@pytest.mark.parametrize("what, expected", [("colour", "samples per pixel"), ("bits", "1-bit"), ("jpeg", "compression"),
                                            ("shapes", "page 1"), ("half", "16 bits")])
def test_what_is_no_volume_is_refused_in_a_sentence(voxloom, tmp_path, what, expected):
    path = tmp_path / f"{what}.tif"
    if what == "colour":
        tifffile.imwrite(path, numpy.zeros((20, 30, 3), numpy.uint8), photometric="rgb")
    elif what == "bits":
        tifffile.imwrite(path, numpy.zeros((20, 30), bool))
    elif what == "jpeg":
        tifffile.imwrite(path, numpy.zeros((32, 32), numpy.uint8), compression="jpeg")
    elif what == "half":
        tifffile.imwrite(path, numpy.zeros((20, 30), numpy.float16))
    else:
        with tifffile.TiffWriter(path) as writer:
            writer.write(numpy.zeros((20, 30), numpy.uint8))
            writer.write(numpy.zeros((21, 30), numpy.uint8))
    failed = voxloom("convert", path, tmp_path / "out.npy", check=False)
    assert failed.returncode == 1, failed.stderr
    assert expected in failed.stderr and path.name in failed.stderr
    assert len(failed.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "out.npy").exists()


def test_real_stacks_are_read_as_tifffile_reads_them(voxloom, shared, tmp_path):
    stacks = sorted((shared / "data" / "vessels").glob("*.tif"))
    if not stacks:
        pytest.skip("the vessel stacks are not here")
    for path in stacks:
        assert numpy.array_equal(read_by_voxloom(voxloom, path, tmp_path), tifffile.imread(path)), path.name
