"""`inspect` of a volume file, against numpy; its memory does not grow with the file."""
import gzip
import json
import re

import layouts
import nibabel
import numpy as np
import pytest
import tifffile
from planned import cases_of

from processes import peak_kib


def inspect(voxloom, path, *overrides):
    return json.loads(voxloom("inspect", path, *overrides, "--json").stdout)


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".nii.gz", ".tif"])
def test_statistics_are_those_of_numpy(voxloom, draw, tmp_path, suffix):
    generator = np.random.default_rng(draw.randrange(2**32))
    array = generator.normal(draw.choice([0, 30000]), 2, (9, 31, 17)).astype("float32")
    np.save(tmp_path / "a.npy", array)
    if suffix != ".npy":
        voxloom("convert", tmp_path / "a.npy", tmp_path / f"a{suffix}")
    facts = inspect(voxloom, tmp_path / f"a{suffix}")
    wide = array.astype("float64")
    assert facts["shape"] == [9, 31, 17] and facts["dtype"] == "float32"
    assert facts["minimum"] == wide.min() and facts["maximum"] == wide.max()
    assert facts["mean"] == pytest.approx(wide.mean(), rel=1e-12, abs=1e-9)
    assert facts["std"] == pytest.approx(wide.std(), rel=1e-9)
    assert facts["labels"] is None
    assert [p for p in facts["problems"] if "sform" not in p] == []


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "uint32", "int32", "float32"])
def test_labels_are_counted(voxloom, draw, tmp_path, dtype):
    generator = np.random.default_rng(draw.randrange(2**32))
    values = [0, 1, 2, 100] if np.dtype(dtype).kind == "u" else [-3, 0, 1, 100]
    array = generator.choice(values, (5, 20, 30)).astype(dtype)
    np.save(tmp_path / "a.npy", array)
    found, counts = np.unique(array, return_counts=True)
    assert inspect(voxloom, tmp_path / "a.npy")["labels"] == {
        str(int(v)): int(n) for v, n in zip(found, counts)}


def test_many_values_are_no_labels(voxloom, tmp_path):
    np.save(tmp_path / "a.npy", np.arange(6000, dtype="uint16").reshape(10, 20, 30))
    assert inspect(voxloom, tmp_path / "a.npy")["labels"] is None


def test_slope_and_spacing_of_nifti(voxloom, tmp_path):
    affine = np.diag([2.0, 3.0, 4.0, 1])
    image = nibabel.Nifti1Image(np.arange(24, dtype="int16").reshape(2, 3, 4), affine)
    image.header.set_slope_inter(0.5, -4)
    nibabel.save(image, tmp_path / "a.nii")
    facts = inspect(voxloom, tmp_path / "a.nii")
    values = nibabel.load(tmp_path / "a.nii").get_fdata()
    assert facts["shape"] == [4, 3, 2] and facts["spacing"] == [4, 3, 2]
    assert (facts["minimum"], facts["maximum"]) == (values.min(), values.max())
    assert facts["mean"] == pytest.approx(values.mean())
    assert facts["dtype"] == "int16" and facts["problems"] == []


def test_what_is_wrong_is_said(voxloom, draw, tmp_path):
    array = np.random.default_rng(0).normal(size=(6, 7, 8)).astype("float32")
    place = tuple(draw.randrange(n) for n in array.shape)
    array[place] = draw.choice([np.nan, np.inf, -np.inf])
    np.save(tmp_path / "a.npy", array)
    facts = inspect(voxloom, tmp_path / "a.npy")
    assert len(facts["problems"]) == 1
    assert facts["problems"][0].startswith("1 values") and "%d,%d,%d" % place in facts["problems"][0]
    assert facts["maximum"] == array[np.isfinite(array)].max()

    np.save(tmp_path / "b.npy", np.full((2, 3, 4), 7, "uint8"))
    assert "same value, 7" in inspect(voxloom, tmp_path / "b.npy")["problems"][0]

    np.save(tmp_path / "c.npy", np.full((2, 3, 4), np.nan, "float32"))
    facts = inspect(voxloom, tmp_path / "c.npy")
    assert facts["minimum"] is None and facts["mean"] is None and "24 values" in facts["problems"][0]

    image = nibabel.Nifti1Image(np.arange(24, dtype="uint8").reshape(2, 3, 4), np.diag([1, 1, 50.0, 1]))
    nibabel.save(image, tmp_path / "d.nii")
    assert any("tenfold" in p for p in inspect(voxloom, tmp_path / "d.nii")["problems"])
    image.set_sform(None, code=0)
    image.set_qform(None, code=0)
    nibabel.save(image, tmp_path / "e.nii")
    assert any("sform" in p for p in inspect(voxloom, tmp_path / "e.nii")["problems"])


def test_text_says_the_same(voxloom, tmp_path):
    array = np.zeros((3, 4, 5), "uint8")
    array[1] = 2
    np.save(tmp_path / "a.npy", array)
    text = voxloom("inspect", tmp_path / "a.npy").stdout
    assert "3x4x5" in text and "uint8" in text and "2: 20 voxels" in text and "no problems" in text


def test_tiff_stack(voxloom, tmp_path):
    array = np.random.default_rng(1).integers(0, 60000, (5, 33, 47), dtype="uint16")
    tifffile.imwrite(tmp_path / "a.tif", array, compression="zlib", photometric="minisblack")
    facts = inspect(voxloom, tmp_path / "a.tif")
    assert facts["shape"] == [5, 33, 47] and facts["dtype"] == "uint16"
    assert facts["mean"] == pytest.approx(array.mean(), rel=1e-12)


@pytest.mark.parametrize("suffix", [".npy", ".nii.gz"])
def test_memory_does_not_grow_with_the_file(tmp_path, suffix):
    """A file of 400 MiB is inspected in a quarter of that (the program itself and its libraries included)."""
    path = tmp_path / f"a{suffix}"
    shape = (400, 1024, 1024)
    if suffix == ".npy":
        np.save(path, np.zeros(shape, "uint8"))
    else:
        header = nibabel.Nifti1Header()
        header.set_data_shape(shape[::-1])
        header.set_data_dtype("uint8")
        header["vox_offset"] = 352
        with gzip.open(path, "wb", compresslevel=1) as file:
            file.write(header.binaryblock + bytes(4))
            for _ in range(shape[0]):
                file.write(bytes(shape[1] * shape[2]))
    small = tmp_path / "small.npy"
    np.save(small, np.zeros((4, 4, 4), "uint8"))
    assert peak_kib("inspect", path) - peak_kib("inspect", small) < 100 * 1024


def test_recipe(voxloom, tmp_path):
    generator = np.random.default_rng(3)
    for index in range(6):
        image = generator.normal(index, 1, (8, 9, 10 + index)).astype("float32")
        label = generator.integers(0, 3, image.shape).astype("uint8")
        if index == 4:
            image[1, 2, 3] = np.nan
        for folder, array in (("images", image), ("labels", label)):
            (tmp_path / folder).mkdir(exist_ok=True)
            np.save(tmp_path / folder / f"c{index}.npy", array)
    (tmp_path / "train.yaml").write_text(
        "data: {root: ., images: [images/*.npy], label: labels/*.npy, folds: 5, cache_dir: cache}\n")
    facts = inspect(voxloom, tmp_path / "train.yaml")
    assert [case["id"] for case in facts["cases"]] == ["c0", "c1", "c2", "c3", "c5"]
    assert sum(facts["splits"].values()) == 5
    assert [skipped["id"] for skipped in facts["skipped"]] == ["c4"] and "c4" in " ".join(facts["problems"])
    total = {}
    for case in facts["cases"]:
        image = np.load(tmp_path / "images" / f"{case['id']}.npy").astype("float64")
        values, counts = np.unique(np.load(tmp_path / "labels" / f"{case['id']}.npy"), return_counts=True)
        assert case["shape"] == list(image.shape) and case["dtype"] == "float32"
        assert case["mean"][0] == pytest.approx(image.mean()) and case["maximum"][0] == image.max()
        assert case["labels"] == {str(v): n for v, n in zip(values.tolist(), counts.tolist())}
        for value, count in case["labels"].items():
            total[value] = total.get(value, 0) + count
    assert facts["labels"] == total
    assert "1 skipped" in voxloom("inspect", tmp_path / "train.yaml").stdout
    result = voxloom("inspect", tmp_path / "train.yaml", "data.patch_sise=3", "--json", check=False)
    assert result.returncode == 1 and "patch_size" in result.stderr and result.stdout == ""


def test_a_case_whose_image_says_nothing_is_named(voxloom, tmp_path):
    generator = np.random.default_rng(4)
    for index in range(3):
        image = np.full((2, 8, 9, 10), 0.1 if index == 1 else 7, "float32")  # one channel may be a mask that is empty
        if index != 1:
            image[0] = generator.normal(0, 1, image.shape[1:])
        for folder, array in (("images", image), ("labels", generator.integers(0, 2, image.shape[1:]).astype("uint8"))):
            (tmp_path / folder).mkdir(exist_ok=True)
            np.save(tmp_path / folder / f"c{index}.npy", array)
    (tmp_path / "train.yaml").write_text(
        "data: {root: ., images: [images/*.npy], label: labels/*.npy, split: none, cache_dir: cache}\n")
    for steps in ("[]", "[zscore]", "[{name: zscore, foreground: true}, {name: clip, min: -1, max: 1}]"):
        facts = inspect(voxloom, tmp_path / "train.yaml", f"data.preprocess={steps}")
        assert facts["problems"] == ["case c1: every voxel of the image has the same value"], steps


def test_volumes_of_a_case_that_lie_elsewhere_by_their_headers_are_named(voxloom, draw, tmp_path):
    shape, affine = (10, 9, 8), np.diag([-2.0, 1.0, 3.0, 1])
    affine[:3, 3] = [draw.uniform(-90, 90) for _ in range(3)]
    rotation = affine.copy()
    rotation[:3, :3] = affine[:3, :3] @ np.array([[np.cos(0.3), -np.sin(0.3), 0], [np.sin(0.3), np.cos(0.3), 0], [0, 0, 1]])
    shift = affine.copy()
    shift[:3, 3] += [0.4, 0, 3.5]
    flipped = affine @ np.diag([-1, 1, 1, 1.0])  # the same place, stored the other way round
    flipped[:3, 3] = (affine @ [shape[0] - 1, 0, 0, 1])[:3]
    labels = {"same": affine, "rounded": affine + 1e-5, "shifted": shift, "turned": rotation, "flipped": flipped}
    expected = []
    (tmp_path / "images").mkdir()
    (tmp_path / "labels").mkdir()
    for name, of_label in sorted(labels.items()):
        values = np.random.default_rng(1).integers(0, 2, shape).astype("uint8")
        nibabel.save(nibabel.Nifti1Image(values.astype("int16") * 7, affine), tmp_path / "images" / f"{name}.nii")
        nibabel.save(nibabel.Nifti1Image(values, of_label), tmp_path / "labels" / f"{name}.nii")
        corners = np.array(np.meshgrid(*[[0, size - 1] for size in shape], [1])).reshape(4, -1)
        apart = np.linalg.norm((affine @ corners - of_label @ corners)[:3], axis=0).max()
        if name != "flipped" and apart > 0.5:
            expected.append((name, apart))
    (tmp_path / "train.yaml").write_text(
        "data: {root: ., images: [images/*.nii], label: labels/*.nii, split: none, cache_dir: cache, orientation: RAS}\n")
    problems = inspect(voxloom, tmp_path / "train.yaml")["problems"]
    assert [name for name, _ in expected] == ["shifted", "turned"]
    for problem, (name, apart) in zip(problems, expected, strict=True):
        assert f"case {name}: by the headers" in problem
        assert float(problem.split(" lies up to ")[1].split(" mm off ")[0]) == pytest.approx(apart, rel=1e-3)


def test_what_is_odd_about_a_case_is_said_by_init_too(voxloom, generator, tmp_path):
    affine, moved = np.diag([1.0, 1, 1, 1]), np.diag([1.0, 1, 1, 1])
    moved[0, 3] = 7  # mm
    for number in range(12):
        image, label = layouts.volume(generator, (20, 24, 22))
        if number == 1:
            image[:] = 9
        if number == 2:
            label[:] = 0
        for kind, array in (("images", image), ("labels", label)):
            (tmp_path / "data" / kind).mkdir(parents=True, exist_ok=True)
            header = moved if kind == "labels" and number not in (1, 2) else affine
            nibabel.save(nibabel.Nifti1Image(np.transpose(array), header), tmp_path / "data" / kind / f"c{number}.nii")
    recipe = tmp_path / "recipe.yaml"
    said = voxloom("init", tmp_path / "data", "--output", recipe).stderr
    told = re.findall(r"^problem: (.*)$", said, re.MULTILINE)
    _, facts = cases_of(voxloom, recipe, f"data.cache_dir={tmp_path}/cache")
    assert len(facts["problems"]) == 12 and told[:10] == facts["problems"][:10]
    assert "lies up to 7 mm off" in told[0] and told[1] == "case c1: every voxel of the image has the same value"
    assert told[2] == "case c2: the whole label is 0" and told[10:] == [f"and 2 more; `voxloom inspect {recipe}` lists all"]
