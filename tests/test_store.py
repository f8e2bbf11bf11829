"""What the store does to volumes before a patch sees them, against NumPy, SciPy and nibabel."""
import json
import shutil

import h5py
import nibabel
import nrrd
import numpy as np
import pytest
import scipy.ndimage

from test_dataset import save, write_recipe


@pytest.fixture
def facts(voxloom, tmp_path):
    """Shape and statistics of case `a` after `steps`."""

    def inspect(steps, image="a.npy", **data):
        recipe = write_recipe(tmp_path, {"images": [image], "split": "none", "preprocess": steps, **data})
        return json.loads(voxloom("inspect", recipe, "--json").stdout)["cases"][0]

    return inspect


def expect(case, array, rtol=1e-6):
    array = array.astype(np.float64)
    assert case["shape"] == list(array.shape)
    scale = max(1, abs(array).max())
    for key, value in (("mean", array.mean()), ("std", array.std()), ("minimum", array.min()), ("maximum", array.max())):
        np.testing.assert_allclose(case[key][0], value, rtol=rtol, atol=rtol * scale, err_msg=key)


def test_intensity_steps_match_numpy(facts, draw, tmp_path):
    generator = np.random.default_rng(draw.randrange(2**32))
    image = generator.normal(100, 400, (12, 13, 14)).astype(np.int16)
    save(tmp_path / "a.npy", image)
    values = image.astype(np.float64)
    expect(facts([{"name": "clip", "min": -50, "max": 300}]), values.clip(-50, 300))
    expect(facts([{"name": "zscore"}]), (values - values.mean()) / values.std())
    expect(facts([{"name": "minmax"}]), (values - values.min()) / (values.max() - values.min()))
    expect(facts([{"name": "window", "center": 40, "width": 400}]), (values.clip(-160, 240) + 160) / 400)
    low, high = np.percentile(values, [2, 98], method="nearest")
    expect(facts([{"name": "percentile", "low": 2, "high": 98}]), (values.clip(low, high) - low) / (high - low))


@pytest.mark.parametrize("dtype", ["uint8", "int16", "float32"])
def test_background_stays_zero_as_in_monai(facts, draw, tmp_path, dtype):
    transforms = pytest.importorskip("monai.transforms")
    generator = np.random.default_rng(draw.randrange(2**32))
    image = (generator.integers(1, 250, (9, 10, 11)) * (generator.random((9, 10, 11)) < 0.3)).astype(dtype)
    save(tmp_path / "a.npy", image)
    truth = transforms.NormalizeIntensity(nonzero=True)(image.astype(np.float32)[None])[0].numpy()
    steps = [{"name": "zscore", "foreground": True}]
    expect(facts(steps), truth, rtol=1e-5)
    shape = (12, 15, 7)
    resampled = scipy.ndimage.zoom(truth, [o / i for o, i in zip(shape, image.shape)], order=1, mode="nearest",
                                   grid_mode=True)
    expect(facts([*steps, {"name": "resample", "shape": list(shape)}]), resampled, rtol=1e-5)


@pytest.mark.parametrize("dtype", ["uint8", "int16", "float32"])
@pytest.mark.parametrize("size", [3, 5])
def test_median_matches_scipy(facts, draw, tmp_path, dtype, size):
    generator = np.random.default_rng(draw.randrange(2**32))
    image = generator.integers(0, 200, (7, 9, 70)).astype(dtype)
    save(tmp_path / "a.npy", image)
    expect(facts([{"name": "median", "size": size}]), scipy.ndimage.median_filter(image, size=size))


def test_resample_matches_scipy(facts, draw, tmp_path):
    generator = np.random.default_rng(draw.randrange(2**32))
    image = generator.normal(0, 1, (10, 12, 14)).astype(np.float32)
    save(tmp_path / "a.npy", image)
    shape = (15, 6, 21)
    truth = scipy.ndimage.zoom(image, [o / i for o, i in zip(shape, image.shape)], order=1, mode="nearest",
                               grid_mode=True)
    expect(facts([{"name": "resample", "shape": list(shape)}]), truth, rtol=1e-5)


def test_spacing_and_orientation_of_nifti_files(facts, draw, tmp_path):
    generator = np.random.default_rng(draw.randrange(2**32))
    image = generator.integers(0, 255, (20, 16, 10)).astype(np.uint8)  # x, y, z
    affine = np.array([[0, -0.5, 0, 3], [2.0, 0, 0, -4], [0, 0, 3.0, 1], [0, 0, 0, 1]])
    nibabel.save(nibabel.Nifti1Image(image, affine), tmp_path / "a.nii.gz")
    canonical = nibabel.as_closest_canonical(nibabel.load(tmp_path / "a.nii.gz"))
    case = facts([], image="a.nii.gz", orientation="RAS")
    expect(case, np.asarray(canonical.dataobj).transpose())
    np.testing.assert_allclose(case["spacing"], canonical.header.get_zooms()[::-1], rtol=1e-6)
    # Stored axes are 3, 0.5 and 2 mm apart (z, y, x).
    resampled = facts([{"name": "resample", "spacing": [3, 4, 1]}], image="a.nii.gz")
    assert resampled["shape"] == [10, 16 * 0.5 / 4, 20 * 2 / 1]
    np.testing.assert_allclose(resampled["spacing"], [3, 4, 1], rtol=1e-6)


def test_distance_of_the_channels_that_it_names_matches_scipy(facts, draw, tmp_path):
    generator = np.random.default_rng(draw.randrange(2**32))
    shape, spacing = (14, 13, 12), generator.uniform(0.5, 4, 3)  # x, y, z
    mask = generator.uniform(size=shape) < generator.uniform(0.01, 0.99)
    mask.flat[:2] = 0, 1
    image = generator.integers(-1000, 1000, shape).astype(np.int16)
    for name, values in (("a_0", image), ("a_1", mask.astype(np.uint8)), ("a_2", np.zeros(shape, np.uint8))):
        nibabel.save(nibabel.Nifti1Image(values, np.diag([*spacing, 1])), tmp_path / f"{name}.nii.gz")
    limit = round(generator.uniform(2, 12), 1)
    steps = [{"name": "clip", "min": 0, "max": 500, "channels": [0]},
             {"name": "distance", "limit": limit, "channels": [1, 2]},
             {"name": "zscore", "scope": "dataset", "channels": [0]}]
    case = facts(steps, images=["{id}_0.nii.gz", "{id}_1.nii.gz", "{id}_2.nii.gz"])
    edt = scipy.ndimage.distance_transform_edt
    truth = (edt(~mask, sampling=spacing) - edt(mask, sampling=spacing)).clip(-limit, limit) / limit
    clipped = image.clip(0, 500).astype(np.float64)
    normal = (clipped - clipped.mean()) / clipped.std()
    for key, of in (("mean", np.mean), ("std", np.std), ("minimum", np.min), ("maximum", np.max)):
        np.testing.assert_allclose(case[key][0], of(normal), atol=1e-6, err_msg=key)
        np.testing.assert_allclose(case[key][1], of(truth), atol=0.5 / 127 + 1e-6, err_msg=key)
    assert case["minimum"][2] == case["maximum"][2] == 1, "an empty mask is far from everywhere"


def write_in_two_files(folder, array, kind):
    """Name of the volume, and of the file that holds its voxels."""
    folder.mkdir()
    if kind == "nifti":
        nibabel.save(nibabel.Nifti1Pair(array.transpose(), np.eye(4)), folder / "a.hdr")
        return "a.hdr", "a.img"
    if kind == "nrrd":
        nrrd.write(str(folder / "a.nhdr"), array.transpose())
        return "a.nhdr", "a.raw.gz"
    data = folder / "data"
    if kind != "external":
        with h5py.File(data, "w") as file:
            file["volume"] = array
    with h5py.File(folder / "a.h5", "w") as file:
        file["before"] = np.zeros(100)
        if kind == "external":
            file.create_dataset("volume", data=array, external=[(str(data), 0, array.nbytes)])
        elif kind == "link":
            file["volume"] = h5py.ExternalLink("data", "volume")
        else:
            layout = h5py.VirtualLayout(shape=array.shape, dtype=array.dtype)
            layout[...] = h5py.VirtualSource("data", "volume", shape=array.shape)
            file.create_virtual_dataset("volume", layout)
    return "a.h5:volume", "data"


@pytest.mark.parametrize("kind", ["nifti", "nrrd", "external", "link", "virtual"])
def test_a_volume_is_read_anew_when_the_file_beside_its_header_changes(facts, draw, tmp_path, kind):
    generator = np.random.default_rng(draw.randrange(2**32))
    before, after = generator.integers(-500, 500, (2, 5, 6, 7)).astype(np.int16)
    name, data = write_in_two_files(tmp_path / "a", before, kind)
    write_in_two_files(tmp_path / "b", after, kind)
    steps = [{"name": "median", "size": 3}]
    expect(facts(steps, image=f"a/{name}"), scipy.ndimage.median_filter(before, size=3))
    shutil.copyfile(tmp_path / "b" / data, tmp_path / "a" / data)
    expect(facts(steps, image=f"a/{name}"), scipy.ndimage.median_filter(after, size=3))


def test_a_packed_dataset_behind_a_link_is_told_and_kept_as_packed(voxloom, draw, tmp_path):
    array = np.random.default_rng(draw.randrange(2**32)).integers(0, 9, (5, 6, 7)).astype(np.uint8)
    with h5py.File(tmp_path / "data", "w") as file:
        file.create_dataset("volume", data=array, chunks=(2, 3, 4), compression="gzip")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["volume"] = h5py.ExternalLink("data", "volume")
    told = json.loads(voxloom("inspect", f"{tmp_path}/a.h5:volume", "--json").stdout)
    assert told["codec"] == "other"  # what is "none" is read from the file at every patch
    voxloom("convert", f"{tmp_path}/a.h5:volume", tmp_path / "b.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "b.npy"), array)


def test_a_step_that_does_not_exist_names_the_nearest(voxloom, tmp_path):
    save(tmp_path / "a.npy", np.zeros((4, 4, 4), np.uint8))
    recipe = write_recipe(tmp_path, {"images": ["a.npy"], "split": "none", "preprocess": [{"name": "zscor"}]})
    result = voxloom("inspect", recipe, check=False)
    assert result.returncode == 1 and "zscore" in result.stderr


def test_files_under_stage_dir_are_copies_of_the_dataset(voxloom, tmp_path):
    image = np.arange(4 * 5 * 6, dtype=np.uint8).reshape(4, 5, 6)
    save(tmp_path / "a.npy", image)
    recipe = write_recipe(tmp_path, {"images": ["a.npy"], "split": "none", "stage_dir": str(tmp_path / "fast")})
    voxloom("inspect", recipe)
    (copy,) = (tmp_path / "fast").rglob("a.npy")
    assert copy.stat().st_mtime_ns == (tmp_path / "a.npy").stat().st_mtime_ns
    np.testing.assert_array_equal(np.load(copy), image)
