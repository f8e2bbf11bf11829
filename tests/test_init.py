"""`voxloom init`: from a folder of data to a recipe that trains, and one sentence where the folder is wrong."""
import json
import re
import shutil

import layouts
import numpy as np
import pytest
import yaml
from conftest import REPOSITORY
from planned import cases_of, plan


def problems(voxloom, folder, *options):
    result = voxloom("init", folder, "--output", folder.parent / "bad.yaml", *options, check=False)
    assert result.returncode == 1, result.stderr
    said = [line for line in result.stderr.strip().splitlines() if not line.startswith("reading ")]
    assert len(said) == 1 and not (folder.parent / "bad.yaml").exists()
    return said[0]


@pytest.mark.parametrize("kind", layouts.ALL)
def test_every_layout_becomes_a_recipe_that_is_accepted(voxloom, generator, tmp_path, kind):
    folder = tmp_path / "data"
    folder.mkdir()
    count = layouts.ALL[kind](folder, generator)
    recipe = plan(voxloom, folder)
    text = recipe.read_text()
    shown = voxloom("train", recipe, "--dry-run").stdout
    assert "trained parameters" in shown and shown.isascii()
    written = yaml.safe_load(text)
    assert written["inference"].get("submission") == {"vesuvius": "vesuvius", "openkbp": "openkbp"}.get(kind)
    assert written["data"]["root"] == "data"  # below the recipe: the pair can be moved
    cases, facts = cases_of(voxloom, recipe, f"data.cache_dir={tmp_path}/cache")
    assert len(cases) == count and len(facts["skipped"]) == (kind == "vesuvius")
    assert facts["splits"]["train"] > 0 and facts["splits"]["validation"] > 0
    for line in text.splitlines():
        assert len(line) <= 120 or line.lstrip().startswith("- {id")
    assert text.count("#") > 20


def test_folds_of_a_planned_recipe_hold_out_every_scroll_once(voxloom, generator, tmp_path):
    (tmp_path / "data").mkdir()
    layouts.vesuvius(tmp_path / "data", generator, count=10)
    recipe = plan(voxloom, tmp_path / "data")
    held_out = []
    for fold in range(5):
        cases, _ = cases_of(voxloom, recipe, f"training.fold={fold}", f"data.cache_dir={tmp_path}/cache")
        held_out.append({case["group"] for case in cases.values() if case["split"] == "validation"})
        assert not held_out[-1] & {case["group"] for case in cases.values() if case["split"] == "train"}
    assert sorted(group for groups in held_out for group in groups) == ["0", "1", "2", "3", "4"]


def test_folds_of_a_datalist_stay_as_they_are(voxloom, generator, tmp_path):
    (tmp_path / "data").mkdir()
    layouts.datalist(tmp_path / "data", generator, count=6, folds=3)
    recipe = plan(voxloom, tmp_path / "data")
    for fold in range(3):
        cases, _ = cases_of(voxloom, recipe, f"training.fold={fold}", f"data.cache_dir={tmp_path}/cache")
        assert {int(name[-1]) % 3 for name, case in cases.items() if case["split"] == "validation"} == {fold}


def test_nothing_is_resampled_where_a_label_does_not_say_its_spacing(voxloom, generator, tmp_path):
    for number in range(3):
        image, label = layouts.volume(generator, (20, 24, 22))
        layouts.write_nifti(tmp_path / "data" / "images" / f"c{number}.nii", image, (1 + number, 1, 1))
        layouts.write_tiff(tmp_path / "data" / "labels" / f"c{number}.tif", label)
    recipe = plan(voxloom, tmp_path / "data")
    assert yaml.safe_load(recipe.read_text())["data"]["preprocess"] == [{"name": "zscore"}]
    assert "Not every file says its spacing" in recipe.read_text()
    voxloom("train", recipe, "--dry-run")


def turned_and_scaled(voxloom, folder, generator, spacing, shape):
    """How a planned recipe turns and scales: what nnU-Net does in the plane of slices, it does about their normal."""
    for number in range(3):
        image, label = layouts.volume(generator, shape)
        layouts.write_nifti(folder / "images" / f"c{number}.nii", image, spacing)
        layouts.write_nifti(folder / "labels" / f"c{number}.nii", label, spacing)
    shown = voxloom("train", plan(voxloom, folder, "--force"), "--dry-run").stdout
    resolved = yaml.safe_load(shown[shown.index("augmentation:"):].split("\nloss:")[0])["augmentation"]
    rotate, scale, coarser = (resolved[name] for name in ("rotate", "scale", "low_resolution"))
    assert rotate["enabled"] and scale["enabled"] and coarser["enabled"] and rotate["prob"] == 0.2
    return rotate["axes"], rotate["degrees"], scale["axes"], coarser["axes"]


def test_thick_slices_are_turned_in_their_plane_along_whichever_axis_they_lie(voxloom, generator, tmp_path):
    for axis in range(3):
        place = [1, 1]
        place.insert(axis, 5)
        shape = [12 if size == 5 else 80 for size in place]
        plane = [other for other in range(3) if other != axis]
        drawn = turned_and_scaled(voxloom, tmp_path / f"thick{axis}", generator, place, shape)
        assert drawn == ([axis], [-180, 180], plane, plane), axis
    short = turned_and_scaled(voxloom, tmp_path / "short", generator, (1, 1, 1.5), (16, 80, 64))  # few along z, but fine
    assert short == ([0, 1, 2], [-30, 30], [0, 1, 2], [0, 1, 2])


def test_spacings_that_differ_are_brought_to_their_median(voxloom, generator, tmp_path):
    spacings = [(3, 1, 1), (2.5, 0.8, 0.8), (2, 0.5, 0.5), (2, 0.75, 0.75), (4, 0.9, 0.9)]
    for number, spacing in enumerate(spacings):
        image, label = layouts.volume(generator, (24, 40, 44))
        layouts.write_nifti(tmp_path / "data" / "images" / f"c{number}.nii.gz", image, spacing)
        layouts.write_nifti(tmp_path / "data" / "labels" / f"c{number}.nii.gz", label, spacing)
    recipe = plan(voxloom, tmp_path / "data", "--like", "nnunet")
    steps = yaml.safe_load(recipe.read_text())["data"]["preprocess"]
    assert steps[-1]["name"] == "resample" and steps[-1]["spacing"] == pytest.approx([2.5, 0.8, 0.8], rel=1e-6)
    cases, _ = cases_of(voxloom, recipe, f"data.cache_dir={tmp_path}/cache")
    for number, spacing in enumerate(spacings):
        expected = [max(1, int(size * s / t + 0.5)) for size, s, t in zip((24, 40, 44), spacing, (2.5, 0.8, 0.8))]
        assert np.abs(np.subtract(cases[f"c{number}"]["shape"], expected)).max() <= 1


def test_like_nnunet_a_label_of_the_description_that_no_case_has_is_a_class(voxloom, generator, tmp_path):
    layouts.nnunet(tmp_path / "data", generator, count=3)
    described = json.loads((tmp_path / "data" / "dataset.json").read_text())
    described["labels"] |= {"tumour": 3, "ignore": 4}
    (tmp_path / "data" / "dataset.json").write_text(json.dumps(described))
    written = yaml.safe_load(plan(voxloom, tmp_path / "data", "--like", "nnunet").read_text())
    assert written["data"]["labels"] == [0, 1, 2, 3] and written["model"]["out_channels"] == 4  # as its checkpoints have
    assert written["data"]["ignore_label"] == 4


def test_a_region_of_one_value_is_a_class_with_a_name(voxloom, generator, tmp_path):
    layouts.nnunet(tmp_path / "data", generator, count=3)
    described = json.loads((tmp_path / "data" / "dataset.json").read_text())
    described["labels"] = {"background": 0, "whole": [1, 2], "core": [2]}
    (tmp_path / "data" / "dataset.json").write_text(json.dumps(described))
    recipe = plan(voxloom, tmp_path / "data")
    text = recipe.read_text()
    assert "The label whole of dataset.json is a region" in text and "The label core" not in text and "2 (core)" in text
    assert yaml.safe_load(text)["data"]["labels"] == [0, 1, 2]


@pytest.mark.parametrize("options", [[], ["--like", "nnunet"]])
def test_where_no_voxel_is_background_every_label_is_a_class_beside_it(voxloom, generator, tmp_path, options):
    for number in range(3):
        image, label = layouts.volume(generator, (20, 24, 22))
        layouts.write_tiff(tmp_path / "data" / "images" / f"c{number}.tif", image)
        layouts.write_tiff(tmp_path / "data" / "labels" / f"c{number}.tif", label + 1)
    recipe = plan(voxloom, tmp_path / "data", *options)
    written = yaml.safe_load(recipe.read_text())
    assert written["data"]["labels"] == [0, 1, 2] and written["model"]["out_channels"] == 3
    assert {"name": "dice", "background": False} in written["loss"]["terms"]
    voxloom("train", recipe, "--dry-run")


def hippocampus(shared, folder):
    shutil.copytree(shared / "data" / "hippocampus", folder, dirs_exist_ok=True)
    return folder


def test_hippocampus_is_planned_as_nnunet_plans_it(voxloom, shared, tmp_path):
    recipe = plan(voxloom, hippocampus(shared, tmp_path / "data"), "--like", "nnunet")
    options = yaml.safe_load(recipe.read_text())
    assert options["data"]["patch_size"] == [40, 56, 40]
    assert options["model"]["filters"] == [32, 64, 128, 256]
    assert options["model"]["strides"] == [[1, 1, 1], [2, 2, 2], [2, 2, 2], [2, 2, 2]]
    assert "kernels" not in options["model"]  # 3 everywhere
    assert "1 x 1 x 1 mm: nothing is resampled" in recipe.read_text().replace("\n    #", "").replace("\n  #", "")
    # Of these 40 cases two patches are more than 5 %; of all 260 it would be nine (src/plan/plan_test.cpp).
    assert options["data"]["batch_size"] == 2
    assert options["model"]["out_channels"] == 3


@pytest.mark.parametrize("name, options", [("train.yaml", []), ("nnunet.yaml", ["--like", "nnunet"])])
def test_the_hippocampus_recipes_are_what_init_writes(voxloom, shared, tmp_path, name, options):
    written = plan(voxloom, hippocampus(shared, tmp_path / "data"), *options, name=name).read_text()
    kept = REPOSITORY / "recipes" / "hippocampus" / name
    assert kept.read_text() == written, f"write {kept} anew: voxloom init data --output {name} {' '.join(options)}"


def test_a_recipe_is_never_replaced_unasked(voxloom, generator, tmp_path):
    (tmp_path / "data").mkdir()
    layouts.folders(tmp_path / "data", generator)
    recipe = plan(voxloom, tmp_path / "data")
    recipe.write_text("mine")
    result = voxloom("init", tmp_path / "data", "--output", recipe, check=False)
    assert result.returncode == 1 and str(recipe) in result.stderr and "--force" in result.stderr
    assert recipe.read_text() == "mine"
    voxloom("init", tmp_path / "data", "--output", recipe, "--force")
    assert "images/{id}.tif" in recipe.read_text()
    assert voxloom("init", tmp_path / "data", "--output", tmp_path / "x.txt", check=False).returncode == 1
    assert voxloom("init", tmp_path / "data", check=False).returncode == 2
    assert voxloom("init", tmp_path / "data", "--output", tmp_path / "y.yaml", "--like", "x", check=False).returncode == 2


def break_label(folder):
    (folder / "masks" / "s1.tif").unlink()
    return "s1.tif"


def break_image(folder):
    (folder / "images" / "s2.tif").unlink()
    return "s2.tif"


def break_shape(folder):
    layouts.write_tiff(folder / "masks" / "s3.tif", np.zeros((20, 24, 21), np.uint8))
    return "s3.tif"


def break_file(folder):
    (folder / "images" / "s4.tif").write_bytes(b"II*\0 and nothing more")
    return "s4.tif"


def break_values(folder):
    layouts.write_tiff(folder / "images" / "s0.tif", np.full((20, 24, 22), np.nan, np.float32))
    return "s0.tif"


def break_classes(folder):
    layouts.write_tiff(folder / "masks" / "s0.tif", np.full((20, 24, 22), 0.5, np.float32))
    return "s0.tif"


def break_labels(folder):
    for path in (folder / "masks").iterdir():
        layouts.write_tiff(path, np.zeros((20, 24, 22), np.uint8))
    return "above 0"


def break_suffixes(folder):
    np.save(folder / "images" / "s9.npy", np.zeros((2, 2, 2)))
    return "s9.npy"


def break_partner_folder(folder):
    shutil.rmtree(folder / "masks")
    return "images"


def break_everything(folder):
    shutil.rmtree(folder)
    folder.mkdir()
    return "empty"


def break_layout(folder):
    break_everything(folder)
    (folder / "notes.txt").write_text("nothing")
    return "notes.txt"


@pytest.mark.parametrize("break_it", [break_label, break_image, break_shape, break_file, break_values, break_classes,
                                      break_labels, break_suffixes, break_partner_folder, break_everything, break_layout])
def test_a_wrong_folder_is_one_sentence_that_names_it(voxloom, generator, tmp_path, break_it):
    folder = tmp_path / "data"
    folder.mkdir()
    layouts.folders(folder, generator)
    named = break_it(folder)
    assert named in problems(voxloom, folder)


def datalist_of(folds, **more):
    entries = [{"image": f"imagesTr/heart_{i}.nii.gz", "label": f"labelsTr/heart_{i}.nii.gz"} for i in range(len(folds))]
    return json.dumps({"training": [entry if fold is None else {**entry, "fold": fold}
                                    for entry, fold in zip(entries, folds)], **more})


def test_what_the_descriptions_of_other_layouts_get_wrong_is_named(voxloom, generator, tmp_path):
    for kind, path, text, named in [
            (layouts.nnunet, "imagesTr/case_001_0001.nii.gz", None, "case_001_0001.nii.gz"),
            (layouts.nnunet, "imagesTr/case_001_0000.nii.gz", None, "case_001"),
            (layouts.nnunet, "dataset.json", "{broken", "dataset.json"),
            (layouts.nnunet, "dataset.json", '{"channel_names": ["CT"]}', "channel_names"),
            (layouts.nnunet, "dataset.json", None, "dataset.json is missing"),
            (layouts.nnunet, "dataset.json", '{"channel_names": {"0": "CT"}}', "names 1 under channel_names"),
            (layouts.nnunet, "dataset.json", '{"channel_names": {"0": "CT", "1": "PET"}, "labels": {"core": 1}}',
             "has the value 2"),
            (layouts.datalist, "dataset.json", '{"training": [', "dataset.json"),
            (layouts.datalist, "dataset.json", datalist_of([0, 1, None]), "case heart_2 has no fold"),
            (layouts.datalist, "dataset.json", datalist_of([0, 1], validation="none"), '"validation" is no list'),
            (layouts.datalist, "labelsTr/heart_2.nii.gz", None, "heart_2"),
            (layouts.datalist, "dataset.json", '{"training": [{"image": "imagesTr/heart_1.nii.gz"}]}', "dataset.json"),
            (layouts.vesuvius, "train_labels/1003.tif", None, "1003"),
            (layouts.vesuvius, "train_images/1003.tif", None, "1003"),
            (layouts.vesuvius, "train.csv", "id,scroll_id\n1001,2\n", "1000.tif")]:
        folder = tmp_path / "data"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        kind(folder, generator, count=4)
        (folder / path).unlink()
        if text is not None:
            (folder / path).write_text(text)
        said = problems(voxloom, folder)
        assert named in said, (path, said)


def test_the_first_nnunets_list_names_images_without_their_channel(voxloom, generator, tmp_path):
    folder = tmp_path / "data"
    layouts.nnunet(folder, generator, count=3, channels=("MRI",))
    names = [f"case_{number:03d}.nii.gz" for number in range(3)]
    (folder / "dataset.json").write_text(json.dumps({
        "modality": {"0": "MRI"}, "labels": {"0": "background", "1": "core", "2": "rim"},
        "training": [{"image": f"./imagesTr/{name}", "label": f"./labelsTr/{name}"} for name in names]}))
    data = yaml.safe_load(plan(voxloom, folder).read_text())["data"]
    assert data["images"] == ["imagesTr/{id}_0000.nii.gz"] and data["labels"] == [0, 1, 2]


def test_files_of_one_name_are_told_apart_by_their_folders(voxloom, generator, tmp_path):
    entries = []
    for number in range(3):
        image, label = layouts.volume(generator, (20, 24, 22))
        layouts.write_nifti(tmp_path / "data" / f"pat{number}" / "image.nii.gz", image)
        layouts.write_nifti(tmp_path / "data" / f"pat{number}" / "label.nii.gz", label)
        entries.append({"image": f"pat{number}/image.nii.gz", "label": f"pat{number}/label.nii.gz"})
    (tmp_path / "data" / "list.json").write_text(json.dumps({"training": entries, "validation": []}))
    written = yaml.safe_load(plan(voxloom, tmp_path / "data").read_text())
    assert [case["id"] for case in written["data"]["cases"]] == ["pat0", "pat1", "pat2"]
    assert written["data"]["split"] == "kfold" and written["inference"]["format"] == "nii.gz"


def test_a_label_may_have_an_ending_more_than_its_image(voxloom, generator, tmp_path):
    layouts.folders(tmp_path / "data", generator, count=3)
    for path in (tmp_path / "data" / "masks").iterdir():
        path.rename(path.with_name(f"{path.stem}_mask.tif"))
    written = yaml.safe_load(plan(voxloom, tmp_path / "data").read_text())
    assert written["data"]["images"] == ["images/{id}.tif"] and written["data"]["label"] == "masks/{id}_mask.tif"
    assert "format" not in written["inference"]  # tif, as the labels are
    (tmp_path / "data" / "masks" / "s1_mask.tif").unlink()
    assert "s1_mask.tif" in problems(voxloom, tmp_path / "data")


def test_numbered_channels_need_no_description(voxloom, generator, tmp_path):
    layouts.nnunet(tmp_path / "data", generator, count=3, channels=("T1", "FLAIR", "CT"))
    for before, now in {"imagesTr": "images", "labelsTr": "labels"}.items():
        (tmp_path / "data" / before).rename(tmp_path / "data" / now)
    (tmp_path / "data" / "dataset.json").unlink()
    recipe = plan(voxloom, tmp_path / "data")
    cases, _ = cases_of(voxloom, recipe, f"data.cache_dir={tmp_path}/cache")
    assert {case["channels"] for case in cases.values()} == {3} and set(cases) == {f"case_{i:03d}" for i in range(3)}
    (tmp_path / "data" / "images" / "case_001_0002.nii.gz").unlink()
    assert "case_001_0002.nii.gz" in problems(voxloom, tmp_path / "data")


def test_volumes_that_point_different_ways_are_turned_alike(voxloom, generator, tmp_path):
    import nibabel

    turned = np.array([[0, 0, 2, 0], [1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0, 1]])  # x of the file is y of the world
    for number, affine in enumerate([np.diag([2, 1, 1, 1]), turned, np.diag([2, 1, 1, 1])]):
        shape = (20, 40, 24) if number == 1 else (40, 24, 20)  # z, y, x of the same box
        for kind, array in zip(("images", "labels"), layouts.volume(generator, shape)):
            (tmp_path / "data" / kind).mkdir(parents=True, exist_ok=True)
            nibabel.save(nibabel.Nifti1Image(np.transpose(array), affine), tmp_path / "data" / kind / f"c{number}.nii")
    recipe = plan(voxloom, tmp_path / "data")
    assert yaml.safe_load(recipe.read_text())["data"]["orientation"] == "RAS"
    cases, facts = cases_of(voxloom, recipe, f"data.cache_dir={tmp_path}/cache")
    assert [case["shape"] for case in cases.values()] == [[40, 24, 20]] * 3 and not facts["problems"]
    layouts.write_nifti(tmp_path / "data" / "labels" / "c0.nii", np.ones((40, 24, 20), np.uint8), (1, 1, 3))
    assert re.search(r"c0\.nii has a spacing of 1x1x3 mm but", problems(voxloom, tmp_path / "data"))


def test_a_patient_without_its_tables_is_named(voxloom, tmp_path):
    tables = ["ct", "dose", "possible_dose_mask", "voxel_dimensions"]
    for missing in ("voxel_dimensions", "dose"):
        folder = tmp_path / missing / "data"
        for patient in ("pt_1", "pt_2"):
            (folder / "train-pats" / patient).mkdir(parents=True)
            for name in tables:
                if (patient, name) != ("pt_2", missing):
                    (folder / "train-pats" / patient / f"{name}.csv").write_text(",data\n")
        assert f"pt_2/{missing}.csv is missing" in problems(voxloom, folder)


def test_a_folder_that_is_not_there_or_is_a_file(voxloom, tmp_path):
    (tmp_path / "file").write_text("x")
    for name in ("nowhere", "file"):
        result = voxloom("init", tmp_path / name, "--output", tmp_path / "r.yaml", check=False)
        assert result.returncode == 1 and name in result.stderr and result.stderr.count("\n") == 1


def test_splits_by_folder_say_which_case_has_none(voxloom, generator, tmp_path):
    layouts.folders(tmp_path, generator)
    recipe = tmp_path / "r.yaml"
    recipe.write_text(yaml.safe_dump({"data": {"root": ".", "images": ["images/{id}.tif"], "split": "folder"}}))
    result = voxloom("inspect", recipe, check=False)
    assert result.returncode == 1 and re.search(r"case s0: data.split is folder.*s0\.tif", result.stderr)
