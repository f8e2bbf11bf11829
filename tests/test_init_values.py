"""How `voxloom init` has the values of images made alike: by name or value of each channel, over labelled voxels."""
import json

import layouts
import numpy as np
import pytest
import yaml
from planned import cases_of, plan


def test_intensities_of_ct_are_those_of_labelled_voxels(voxloom, generator, tmp_path):
    folder, taken = tmp_path / "data", []
    for number in range(3):
        label = np.zeros((20, 20, 20), np.uint8)
        label[5:15, 5:15, 5:15] = 1  # 1,000 voxels: each is taken ten times
        image = generator.normal(40, 30 + 10 * number, label.shape).round().astype(np.int16)
        layouts.write_nifti(folder / "imagesTr" / f"c{number}_0000.nii.gz", image)
        layouts.write_nifti(folder / "labelsTr" / f"c{number}.nii.gz", label)
        taken.append(np.repeat(image[label == 1].astype(float), 10))
    (folder / "dataset.json").write_text(json.dumps({
        "channel_names": {"0": "CT"}, "labels": {"background": 0, "liver": 1}, "file_ending": ".nii.gz"}))
    taken = np.concatenate(taken)
    for options in ([], ["--like", "nnunet"]):
        steps = yaml.safe_load(plan(voxloom, folder, *options, "--force").read_text())["data"]["preprocess"]
        assert [step["name"] for step in steps] == ["clip", "normalize"]
        np.testing.assert_allclose([steps[0]["min"], steps[0]["max"]], np.percentile(taken, [0.5, 99.5]), rtol=1e-9)
        np.testing.assert_allclose([steps[1]["mean"], steps[1]["std"]], [taken.mean(), taken.std()], rtol=1e-6)


def nnunet_case(folder, name, channels, label):
    for number, image in enumerate(channels):
        layouts.write_nifti(folder / "imagesTr" / f"{name}_{number:04d}.nii.gz", image)
    layouts.write_nifti(folder / "labelsTr" / f"{name}.nii.gz", label)


def describe_nnunet(folder, names):
    (folder / "dataset.json").write_text(json.dumps({
        "channel_names": {str(i): name for i, name in enumerate(names)}, "labels": {"background": 0, "liver": 1},
        "file_ending": ".nii.gz"}))


def test_a_case_without_labelled_voxels_has_no_say_in_their_intensities(voxloom, generator, tmp_path):
    label = np.zeros((20, 20, 20), np.uint8)
    label[5:15, 5:15, 5:15] = 1
    image = generator.normal(40, 30, label.shape).round().astype(np.int16)
    nnunet_case(tmp_path / "data", "ill", [image], label)
    for number in range(2):
        nnunet_case(tmp_path / "data", f"healthy{number}", [np.full_like(image, -1000)], np.zeros_like(label))
    describe_nnunet(tmp_path / "data", ["CT"])
    clip, normalize = yaml.safe_load(plan(voxloom, tmp_path / "data").read_text())["data"]["preprocess"]
    taken = image[label == 1].astype(float)
    assert [normalize["mean"], normalize["std"]] == pytest.approx([taken.mean(), taken.std()], rel=1e-6)
    assert clip["min"] >= taken.min()


@pytest.mark.parametrize("options", [[], ["--like", "nnunet"]])
def test_every_channel_is_normalised_by_its_name(voxloom, generator, tmp_path, options):
    label, images = np.zeros((20, 20, 20), np.uint8), {}
    label[5:15, 5:15, 5:15] = 1
    for name in ("a", "b"):
        images[name] = [generator.normal(centre, spread, label.shape).round().astype(np.int16)
                        for centre, spread in ((40, 30), (500, 90), (7, 3), (300, 50), (100, 10))]
        nnunet_case(tmp_path / "data", name, images[name], label)
    describe_nnunet(tmp_path / "data", ["CT", "PET", "noNorm", "rescale_to_0_1", "RGB_to_0_1"])
    recipe = plan(voxloom, tmp_path / "data", *options)
    ct = np.concatenate([images[name][0][label == 1].astype(float) for name in images])
    low, high = np.percentile(ct, [0.5, 99.5])
    cases, _ = cases_of(voxloom, recipe, f"data.cache_dir={tmp_path}/cache")
    for name, channels in images.items():
        tomography, pet, raw, ranged, colour = (image.astype(float) for image in channels)
        means = [((tomography.clip(low, high) - ct.mean()) / ct.std()).mean(), 0, raw.mean(),
                 (ranged.mean() - ranged.min()) / np.ptp(ranged), colour.mean() / 255]
        assert cases[name]["mean"] == pytest.approx(means, abs=2e-3)
        assert [cases[name]["std"][i] for i in (1, 2)] == pytest.approx([1, raw.std()], rel=1e-4)


def test_channels_of_ct_are_told_by_their_values_one_by_one(voxloom, generator, tmp_path):
    entries = []
    for number in range(2):
        image, label = layouts.volume(generator, (20, 24, 22))
        layouts.write_nifti(tmp_path / "data" / f"ct{number}.nii", 8 * image.astype(np.int16) - 1000)
        layouts.write_nifti(tmp_path / "data" / f"pet{number}.nii", image)
        layouts.write_nifti(tmp_path / "data" / f"label{number}.nii", label)
        entries.append({"image": [f"ct{number}.nii", f"pet{number}.nii"], "label": f"label{number}.nii"})
    (tmp_path / "data" / "list.json").write_text(json.dumps({"training": entries}))
    steps = yaml.safe_load(plan(voxloom, tmp_path / "data").read_text())["data"]["preprocess"]
    assert [(step["name"], step["channels"]) for step in steps] == [("clip", [0]), ("normalize", [0]), ("zscore", [1])]


def test_values_that_are_to_stay_do(voxloom, generator, tmp_path):
    layouts.nnunet(tmp_path / "data", generator, count=3, channels=("noNorm",))
    recipe = plan(voxloom, tmp_path / "data", "--like", "nnunet")
    assert yaml.safe_load(recipe.read_text())["data"]["preprocess"] == []
    voxloom("train", recipe, "--dry-run")


def test_intensities_are_looked_up_where_a_label_of_other_axes_lies(voxloom, generator, tmp_path):
    import nibabel
    from nibabel.orientations import axcodes2ornt, ornt_transform

    folder, taken = tmp_path / "data", []
    for number in range(2):
        label = np.zeros((20, 20, 20), np.uint8)
        label[2:12, 5:15, 9:19] = 1
        image = generator.normal(40, 30, label.shape).round().astype(np.int16) + 500 * label.astype(np.int16)
        layouts.write_nifti(folder / "imagesTr" / f"c{number}_0000.nii.gz", image)
        turned = nibabel.Nifti1Image(label.T, np.eye(4)).as_reoriented(
            ornt_transform(axcodes2ornt("RAS"), axcodes2ornt("SLA")))
        (folder / "labelsTr").mkdir(exist_ok=True)
        nibabel.save(turned, folder / "labelsTr" / f"c{number}.nii.gz")
        taken.append(np.repeat(image[label == 1].astype(float), 10))
    (folder / "dataset.json").write_text(json.dumps({
        "channel_names": {"0": "CT"}, "labels": {"background": 0, "liver": 1}, "file_ending": ".nii.gz"}))
    data = yaml.safe_load(plan(voxloom, folder).read_text())["data"]
    assert data["orientation"] == "RAS"
    assert data["preprocess"][1]["mean"] == pytest.approx(np.mean(taken), rel=1e-6)


def test_zeros_around_are_left_out_of_the_plan_and_the_mean(voxloom, generator, tmp_path):
    for number in range(3):
        image, label = layouts.volume(generator, (32, 32, 32))
        wide = lambda a: np.pad(a, ((24, 24), (24, 24), (24, 24)))
        layouts.write_tiff(tmp_path / "data" / "images" / f"c{number}.tif", wide(image))
        layouts.write_tiff(tmp_path / "data" / "labels" / f"c{number}.tif", wide(label))
    options = yaml.safe_load(plan(voxloom, tmp_path / "data", "--like", "nnunet").read_text())
    assert options["data"]["patch_size"] == [32, 32, 32]
    assert options["data"]["preprocess"] == [{"name": "zscore", "foreground": True}]


def test_zero_is_a_value_not_the_nearest_that_is_stored(voxloom, generator, tmp_path):
    import nibabel

    for number in range(2):
        image, label = layouts.volume(generator, (32, 32, 32))
        stored = np.pad(image.clip(6, 255), 24, constant_values=5)  # 5 - 5.5 is not 0
        file = nibabel.Nifti1Image(np.transpose(stored), np.eye(4))
        file.header.set_slope_inter(1, -5.5)
        layouts.write_nifti(tmp_path / "data" / "labels" / f"c{number}.nii", np.pad(label, 24))
        (tmp_path / "data" / "images").mkdir(exist_ok=True)
        nibabel.save(file, tmp_path / "data" / "images" / f"c{number}.nii")
    options = yaml.safe_load(plan(voxloom, tmp_path / "data").read_text())
    assert options["data"]["preprocess"] == [{"name": "zscore"}] and options["data"]["patch_size"] == [80, 80, 80]


def test_the_cache_holds_what_preprocessing_makes(voxloom, generator, tmp_path):
    for number, spacing in enumerate([1, 1, 1, 2]):
        image, label = layouts.volume(generator, (32, 32, 32))
        layouts.write_nifti(tmp_path / "data" / "images" / f"c{number}.nii", np.pad(image, 16), [spacing] * 3)
        layouts.write_nifti(tmp_path / "data" / "labels" / f"c{number}.nii", np.pad(label, 16), [spacing] * 3)
    text = plan(voxloom, tmp_path / "data").read_text()
    assert [step["name"] for step in yaml.safe_load(text)["data"]["preprocess"]] == ["zscore", "resample"]
    voxels = 3 * 64**3 + 128**3
    expected = voxels * (4 + 1)  # zscore of the foreground stores float32
    assert f"All volumes as stored take {expected / 2**20:.1f} MiB" in text
