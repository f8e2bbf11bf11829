"""NRRD, PNG stacks and OpenKBP patients, against pynrrd, imageio and pandas."""
import json
import pathlib
import struct
import tarfile
import zlib

import imageio.v3 as imageio
import nrrd
import numpy as np
import pandas
import pytest

from conftest import SHARED
from random_volumes import TYPES, expected_of, random_array, random_shape, read_through, refused


# ---- NRRD ----

@pytest.mark.parametrize("dtype", TYPES + ["int64", "uint64"])
@pytest.mark.parametrize("endian", ["little", "big"])
def test_nrrd(voxloom, draw, tmp_path, dtype, endian):
    for encoding in ("raw", "gzip"):
        array = random_array(draw, dtype)
        name = draw.choice(["a.nrrd", "a.nhdr"])
        header = {"encoding": encoding, "endian": endian, "spacings": [0.5, 1.5, 2.5]}
        nrrd.write(str(tmp_path / name), array.astype(np.dtype(dtype).newbyteorder({"little": "<", "big": ">"}[endian])),
                   header, index_order="C")
        print(name, array.shape, encoding)
        assert np.array_equal(read_through(voxloom, tmp_path / name, tmp_path), expected_of(array))
        facts = json.loads(voxloom("inspect", tmp_path / name, "--json").stdout)
        assert facts["spacing"] == [2.5, 1.5, 0.5] and facts["codec"] == {"raw": "none", "gzip": "gzip"}[encoding]


@pytest.mark.parametrize("space, signs", [("left-posterior-superior", (-1, -1, 1)),
                                          ("right-anterior-superior", (1, 1, 1)), ("LAS", (-1, 1, 1))])
def test_nrrd_directions_become_an_affine(voxloom, draw, tmp_path, space, signs):
    generator = np.random.default_rng(draw.randrange(2**32))
    rotation, _ = np.linalg.qr(generator.normal(size=(3, 3)))
    spacing, origin = generator.uniform(0.5, 3, 3), generator.uniform(-50, 50, 3)
    directions = rotation * spacing[:, None]  # one row an axis x, y, z
    array = random_array(draw, "int16")
    nrrd.write(str(tmp_path / "a.nrrd"), array, {"space": space, "space directions": directions, "space origin": origin},
               index_order="C")
    facts = json.loads(voxloom("inspect", tmp_path / "a.nrrd", "--json").stdout)
    expected = np.column_stack([directions.T, origin]) * np.array(signs)[:, None]
    assert np.allclose(facts["affine"], expected) and np.allclose(facts["spacing"], spacing[::-1])
    voxloom("convert", tmp_path / "a.nrrd", tmp_path / "b.nrrd")
    assert np.allclose(json.loads(voxloom("inspect", tmp_path / "b.nrrd", "--json").stdout)["affine"], expected)


@pytest.mark.parametrize("header, spacing", [
    ({"spacings": [0, 1, 1]}, None), ({"spacings": [np.inf, 1, 1]}, None), ({"spacings": [-2, 1, 3]}, [3, 1, 2]),
    ({"space": "LPS", "space directions": [[0, 0, 0], [0, 1, 0], [0, 0, 1]]}, None),
    ({"space": "LPS", "space directions": np.diag([1.0, np.inf, 1])}, None),
    ({"space": "LPS", "space directions": np.diag([2, -3, 4]), "space origin": [np.inf, 0, 0]}, [4, 3, 2])])
def test_distances_of_voxels_that_cannot_be_say_nothing(voxloom, draw, tmp_path, header, spacing):
    """Else a resampling would make one slice of a volume, whose spacing along that axis is nothing."""
    nrrd.write(str(tmp_path / "a.nrrd"), random_array(draw, "uint8"), header, index_order="C")
    facts = json.loads(voxloom("inspect", tmp_path / "a.nrrd", "--json").stdout)
    assert facts["spacing"] == spacing and facts["affine"] is None and facts["orientation"] is None


def test_nrrd_channels_first_or_last(voxloom, draw, tmp_path):
    array = random_array(draw, "uint8", (3, 5, 6, 7))  # channel, z, y, x
    nrrd.write(str(tmp_path / "slow.nrrd"), array, {"kinds": ["domain", "domain", "domain", "list"]}, index_order="C")
    nrrd.write(str(tmp_path / "fast.nrrd"), np.moveaxis(array, 0, -1),
               {"kinds": ["vector", "domain", "domain", "domain"]}, index_order="C")
    for name in ("slow.nrrd", "fast.nrrd"):
        assert np.array_equal(read_through(voxloom, tmp_path / name, tmp_path), array)


@pytest.mark.parametrize("codec", ["gzip", "none"])
@pytest.mark.parametrize("suffix", [".nrrd", ".nhdr"])
def test_pynrrd_reads_ours(voxloom, draw, tmp_path, codec, suffix):
    for _ in range(3):
        array = random_array(draw, draw.choice(TYPES), random_shape(draw))
        np.save(tmp_path / "a.npy", array)
        voxloom("convert", tmp_path / "a.npy", tmp_path / f"b{suffix}", "--codec", codec)
        got, _ = nrrd.read(str(tmp_path / f"b{suffix}"), index_order="C")
        assert got.dtype == array.dtype and np.array_equal(got, array)


def test_damaged_nrrd_is_one_sentence(voxloom, draw, tmp_path):
    array = random_array(draw, "int16", (10, 11, 12))
    for encoding in ("raw", "gzip"):
        nrrd.write(str(tmp_path / "a.nrrd"), array, {"encoding": encoding})
        content = (tmp_path / "a.nrrd").read_bytes()
        for kept in (60, content.index(b"\n\n") + 1, len(content) // 2, len(content) - 1):
            (tmp_path / "b.nrrd").write_bytes(content[:kept])
            refused(voxloom, tmp_path / "b.nrrd", "b.nrrd")
    nrrd.write(str(tmp_path / "c.nhdr"), array, {"encoding": "raw"})
    next(path for path in tmp_path.glob("c.*") if path.suffix != ".nhdr").unlink()
    refused(voxloom, tmp_path / "c.nhdr", "c.")


# ---- PNG stacks ----

@pytest.mark.parametrize("dtype", ["uint8", "uint16"])
def test_png_stack_in_natural_order(voxloom, draw, tmp_path, dtype):
    array = random_array(draw, dtype, (12, draw.randrange(1, 60), draw.randrange(1, 60)))
    (tmp_path / "stack").mkdir()
    for z, image in enumerate(array):
        imageio.imwrite(tmp_path / "stack" / f"slice{z}.png", image)
    assert np.array_equal(read_through(voxloom, tmp_path / "stack", tmp_path), array)
    facts = json.loads(voxloom("inspect", tmp_path / "stack", "--json").stdout)
    assert facts["format"] == "png_stack" and facts["shape"] == list(array.shape) and facts["dtype"] == dtype


def write_one_bit(path, mask):
    from PIL import Image
    Image.fromarray(mask).convert("1").save(path)


def test_png_masks_of_one_bit_alone_and_mixed(voxloom, draw, tmp_path):
    masks = random_array(draw, "bool", (6, 13, 21))
    for folder, eight_bits in {"pure": [], "mixed": [1, 4]}.items():
        (tmp_path / folder).mkdir()
        for z, mask in enumerate(masks):
            if z in eight_bits:
                imageio.imwrite(tmp_path / folder / f"{z}.png", mask.astype("uint8") * 255)
            else:
                write_one_bit(tmp_path / folder / f"{z}.png", mask)
    assert np.array_equal(read_through(voxloom, tmp_path / "pure", tmp_path), masks.astype("uint8"))
    mixed = np.stack([np.asarray(imageio.imread(tmp_path / "mixed" / f"{z}.png", mode="L")) for z in range(6)])
    assert np.array_equal(read_through(voxloom, tmp_path / "mixed", tmp_path), mixed)
    assert set(np.unique(mixed)) == {0, 255}


@pytest.mark.parametrize("dtype", ["uint8", "uint16"])
def test_imageio_reads_our_slices(voxloom, draw, tmp_path, dtype):
    array = random_array(draw, dtype, (11, draw.randrange(1, 50), draw.randrange(1, 50)))
    np.save(tmp_path / "a.npy", array)
    voxloom("convert", tmp_path / "a.npy", tmp_path / "b.pngs")
    got = [np.asarray(imageio.imread(path)) for path in sorted((tmp_path / "b.pngs").iterdir())]
    assert np.array_equal(np.stack(got), array)


def test_damaged_png_stack_is_one_sentence(voxloom, draw, tmp_path):
    array = random_array(draw, "uint8", (3, 40, 40))
    np.save(tmp_path / "a.npy", array)
    voxloom("convert", tmp_path / "a.npy", tmp_path / "b.pngs")
    content = (tmp_path / "b.pngs/1.png").read_bytes()
    for damaged in (content[:20], content[:len(content) // 2], content[:-4],
                    content[:60] + bytes([content[60] ^ 1]) + content[61:]):
        (tmp_path / "b.pngs/1.png").write_bytes(damaged)
        refused(voxloom, tmp_path / "b.pngs", "1.png")
    imageio.imwrite(tmp_path / "b.pngs/1.png", np.zeros((40, 41), "uint8"))
    refused(voxloom, tmp_path / "b.pngs", "1.png", "40x41")


@pytest.mark.parametrize("side", [100000, 2**31 - 1, 2**32 - 1])
def test_a_png_that_claims_more_than_its_file_can_hold_is_refused(voxloom, tmp_path, side):
    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    (tmp_path / "a.pngs").mkdir()
    (tmp_path / "a.pngs/1.png").write_bytes(
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 16, 0, 0, 0, 0))
        + chunk(b"IDAT", zlib.compress(b"abc")) + chunk(b"IEND", b""))
    refused(voxloom, tmp_path / "a.pngs", "1.png", f"{side}x{side}")


# ---- OpenKBP ----

def patient_by_pandas(folder):
    def sparse(name):
        return pandas.read_csv(folder / f"{name}.csv", index_col=0)
    volumes = {}
    for path in folder.glob("*.csv"):
        if path.stem == "voxel_dimensions":
            continue
        volume, table = np.zeros(128**3, "float64"), sparse(path.stem)
        np.put(volume, table.index, 1 if table["data"].isnull().all() else table["data"].to_numpy())
        volumes[path.stem] = volume.reshape(128, 128, 128)
    return volumes


PATIENTS = ["train-pats/pt_4", "train-pats/pt_6", "validation-pats/pt_201"]  # PTV70 alone; CT above 4095; all structures


@pytest.fixture(scope="module")
def patients(tmp_path_factory):
    """The archive takes 10 s to unpack: once for all."""
    archive = SHARED / "data" / "openkbp" / "openkbp-40train-8validation.tar.xz"
    if not archive.exists():
        pytest.skip("the folder of real data is not here")
    folder = tmp_path_factory.mktemp("openkbp")
    with tarfile.open(archive) as files:
        for member in files:
            if any(f"{patient}/" in member.name for patient in PATIENTS):
                files.extract(member, folder, filter="data")
    return folder


@pytest.mark.parametrize("patient", PATIENTS)
def test_real_openkbp_patients_equal_pandas(voxloom, patients, tmp_path, patient):
    folder = next(path for path in patients.rglob(pathlib.Path(patient).name) if path.is_dir())
    truth = patient_by_pandas(folder)
    structures = ["Brainstem", "SpinalCord", "RightParotid", "LeftParotid", "Esophagus", "Larynx", "Mandible", "PTV56",
                  "PTV63", "PTV70"]
    masks = np.stack([truth.get(name, np.zeros((128,) * 3)) for name in structures])
    assert np.array_equal(read_through(voxloom, f"{folder}:ct", tmp_path), truth["ct"].astype("int16"))
    assert np.array_equal(read_through(voxloom, f"{folder}:dose", tmp_path), truth["dose"].astype("float32"))
    assert np.array_equal(read_through(voxloom, f"{folder}:masks", tmp_path), masks.astype("uint8"))
    assert np.array_equal(read_through(voxloom, folder, tmp_path),
                          np.concatenate([truth["ct"][None], masks]).astype("int16"))
    assert np.array_equal(read_through(voxloom, f"{folder}:possible_dose_mask", tmp_path), truth["possible_dose_mask"])
    facts = json.loads(voxloom("inspect", f"{folder}:PTV70", "--json").stdout)
    assert facts["labels"]["1"] == truth["PTV70"].sum() and facts["format"] == "openkbp"
    assert facts["spacing"] == pytest.approx(np.loadtxt(folder / "voxel_dimensions.csv").tolist())
    (folder / "ct.csv").unlink()
    refused(voxloom, folder, "ct.csv")
