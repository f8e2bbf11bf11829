"""Every recipe of the repository: accepted as it is, and at toy size trained, stopped, resumed, predicted, evaluated."""
import json
import re
import subprocess
import sys

import h5py
import layouts
import numpy as np
import pytest
from conftest import PROGRAM, REPOSITORY
from test_resume import start, wait_for_steps
from training import record, rows

RECIPES = sorted((REPOSITORY / "recipes").glob("*/*.yaml"))
TOY = ["training.max_epochs=2", "training.iterations_per_epoch=4", "training.warmup_steps=2", "training.precision=32",
       "monitor.log_every=1", "monitor.report=false", "data.batch_size=1", "data.cache_gb=1", "validation.patches=2",
       "data.num_workers=1", "system.num_cpus=2", "model.use_checkpoint=false", "inference.overlap=0"]


def named(path):
    return f"{path.parent.name}/{path.stem}"


@pytest.mark.parametrize("recipe", RECIPES, ids=named)
def test_a_recipe_is_accepted_as_it_is(voxloom, recipe):
    result = voxloom("train", recipe, "--dry-run", "model.filters=4" if "openkbp_unet" in recipe.read_text()
                     else "data.prefetch_factor=2")
    assert "trained parameters" in result.stdout, "no network can be made of it"


def test_patients_without_folders_of_splits_are_named_as_the_guide_says(voxloom, tmp_path):
    guide = (REPOSITORY / "recipes/openkbp_dose/README.md").read_text()
    words, = re.findall(r"`(data\.root=data .*)`", guide)
    voxloom("synth", "dose", "data", "--count", "2", "--format", "openkbp", cwd=tmp_path)
    for name, images in (("best", "{id},{id}:plan"), ("reference", "{id}")):
        changes = words.replace("data.images={id},{id}:plan", f"data.images={images}").split()
        voxloom("train", REPOSITORY / f"recipes/openkbp_dose/{name}.yaml", *changes, "data.folds=2", "--dry-run", cwd=tmp_path)
        assert re.search(rf"data\.images={re.escape(images)}[` ]", guide)


@pytest.mark.parametrize("filters", [32, 64, 128])
def test_the_challenges_network_has_its_weights_at_every_width(voxloom, filters):
    """Kernels of 4^3 between so many times `filters` channels, two numbers for each normed one, one bias at the end."""
    levels = [(1, 2), (2, 4), (4, 8), (8, 8), (8, 8), (8, 8), (16, 8), (16, 4), (8, 2), (4, 1)]
    kernels = 11 * filters + 2 * filters + sum(a * b for a, b in levels) * filters**2
    normed = (1 + 2 + 4 + 8 + 8 + 8 + 8 + 4 + 2 + 1) * filters
    shown = voxloom("train", REPOSITORY / "recipes/openkbp_dose/reference.yaml", f"model.filters={filters}", "--dry-run")
    trained = next(line for line in shown.stdout.splitlines() if "trained parameters" in line)
    assert int(trained.split()[1]) == 64 * kernels + 2 * normed + 1


@pytest.mark.parametrize("recipe", RECIPES, ids=named)
def test_no_key_of_a_recipe_is_without_effect(voxloom, recipe):
    findings = json.loads(voxloom("doctor", recipe, "--json", check=False).stdout)["recipe"]
    found, = [finding for finding in findings if finding["name"] == "keys"]
    assert found["verdict"] == "fine", found


def test_every_folder_of_recipes_says_what_it_is():
    for folder in {path.parent for path in RECIPES} - {REPOSITORY / "recipes" / "demo"}:
        text = (folder / "README.md").read_text()
        assert text.isascii() and all(path.name in text for path in folder.glob("*.yaml")), folder


def scrolls(folder):
    subprocess.run([PROGRAM, "synth", "scroll", folder, "--count", "4", "--size", "32", "--seed", "3"], check=True,
                   capture_output=True)


def patients(folder):
    folder.mkdir()
    layouts.openkbp(folder, np.random.default_rng(5))


def lucchi(folder):
    folder.mkdir()
    generator = np.random.default_rng(6)
    for part in ("train", "test"):
        image, label = layouts.volume(generator, (32, 36, 40))
        for name, values in (("im", image), ("mito", label)):
            with h5py.File(folder / f"{part}_{name}.h5", "w") as file:
                file.create_dataset("main", data=values)


def stack(folder):
    generator = np.random.default_rng(7)
    image, label = layouts.volume(generator, (16, 704, 32))
    with h5py.File(folder.parent / "stack.h5", "w") as file:
        file["raw"], file["mito"] = image, label
    script = REPOSITORY / "recipes" / "mitochondria" / "split_vnc.py"
    subprocess.run([sys.executable, script, folder.parent / "stack.h5", folder], check=True)


def hippocampi(folder):
    layouts.folders(folder, np.random.default_rng(8), count=6)
    (folder / "masks").rename(folder / "labels")
    for path in (folder / "images").iterdir():
        for kind in ("images", "labels"):
            array = layouts.tifffile.imread(folder / kind / path.name)
            layouts.write_nifti(folder / kind / f"hippocampus_{path.stem}.nii.gz", np.minimum(array, 2)
                                if kind == "labels" else array)
    subprocess.run(["sh", "-c", f"rm {folder}/*/*.tif"], check=True)


CUBE = ["data.patch_size=16", "inference.window=32", "model.filters=2,4,4,4"]
JOURNEYS = {  # recipe: data, overrides to toy size, split to predict, task, reference
    "scroll_surface/train": (scrolls, CUBE, "validation", "surface", "train_labels"),
    "scroll_surface/small": (scrolls, CUBE, "validation", "surface", "train_labels"),
    "scroll_surface/large": (scrolls, ["data.patch_size=16", "inference.window=32", "model.filters=2,2,2,2,2"], "validation",
                             "surface", "train_labels"),
    "scroll_surface/terms": (scrolls, [*CUBE, "data.train=[scroll_000, scroll_001]", "data.validation=[scroll_002]"],
                             "validation", "surface", "train_labels"),
    "scroll_surface/nnunet": (scrolls, ["data.patch_size=32", "inference.tta=none", "model.filters=2,2,2,2,2,2"], "validation", "surface",
                              "train_labels"),
    "scroll_surface/persistence": (scrolls, [*CUBE, "loss.terms=[{name: dice}, {name: topology, dimensions: [0, 2], "
                                            "deep_supervision: false}]"], "validation", "surface", "train_labels"),
    "openkbp_dose/reference": (patients, ["model.filters=1", "data.patch_size=64", "inference.window=128"], "validation",
                               "dose", "validation-pats"),
    "openkbp_dose/best": (patients, ["model.filters=2,2", "model.strides=[[2,2,2],[2,2,2]]", "data.patch_size=32",
                                     "inference.window=128"], "validation", "dose", "validation-pats"),
    "mitochondria/monai_unet": (lucchi, ["data.patch_size=16", "inference.window=48", "model.filters=2,4"], "test",
                                "segmentation", "test_mito.h5"),
    "mitochondria/basic_unet": (lucchi, ["data.patch_size=16", "inference.window=48", "model.filters=2,2,2,2,2,2"],
                                "test", "segmentation", "test_mito.h5"),
    "mitochondria/mednext": (lucchi, ["data.patch_size=16", "inference.window=48", "inference.tta=none", "model.filters=2"], "test",
                             "segmentation", "test_mito.h5"),
    "mitochondria/fast": (lucchi, ["data.patch_size=16", "inference.window=48", "model.filters=2,2,2,2,2,2"], "test",
                          "segmentation", "test_mito.h5"),
    "mitochondria/vnc": (stack, ["data.patch_size=16,32,32", "inference.window=16,128,32", "inference.tta=none", "model.filters=2,2,2,2,2"], "test", "instances",
                         "vnc_test.h5:mito"),
    "hippocampus/train": (hippocampi, ["data.patch_size=16", "inference.window=24", "model.filters=2,2,2,2"], "validation", "segmentation",
                          "labels"),
    "hippocampus/nnunet": (hippocampi, ["data.patch_size=16", "inference.window=24", "model.filters=2,2,2,2", "inference.tta=none"],
                           "validation", "segmentation", "labels"),
}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    made = {}

    def make(kind):
        if kind not in made:
            made[kind] = tmp_path_factory.mktemp(kind.__name__) / "data"
            kind(made[kind])
        return made[kind]

    return make


def test_every_recipe_has_its_journey():
    assert {named(path) for path in RECIPES} == {*JOURNEYS, "demo/train"}  # whose journey is `voxloom demo`


@pytest.mark.parametrize("name", JOURNEYS)
def test_a_recipe_trains_stops_resumes_predicts_and_is_scored(voxloom, data, tmp_path, name):
    kind, toy, split, task, reference = JOURNEYS[name]
    recipe, folder, run = REPOSITORY / "recipes" / f"{name}.yaml", data(kind), tmp_path / "run"
    options = [*TOY, *toy, f"data.root={folder}", f"data.cache_dir={tmp_path}/cache"]
    process = start(recipe, run, *options)
    wait_for_steps(run, 1, process)
    voxloom("stop", run, check=False)  # it may have been quicker
    error = process.communicate()[1]
    assert process.returncode in (0, 130, 143), error
    voxloom("train", recipe, "--run", run, *options)
    assert record(run)["state"] == "finished"
    assert [int(row["step"]) for row in rows(run)] == list(range(1, 9))
    losses = [float(row["loss"]) for row in rows(run)]
    assert np.isfinite(losses).all()
    voxloom("predict", run, "--split", split, "--output", tmp_path / "out")
    for_a_challenge = name.startswith(("scroll_surface/", "openkbp_dose/")) and name != "scroll_surface/terms"
    assert (tmp_path / "out" / "submission.zip").exists() == for_a_challenge
    scores = json.loads(voxloom("evaluate", "--task", task, "--prediction", prediction(tmp_path / "out", task, reference),
                                "--reference", folder / reference, "--subset",
                                *(["--ignore-label", 2] if task == "surface" else []), "--json").stdout)
    assert scores["cases"] and all(np.isfinite(value) for value in scores["mean"].values()
                                   if isinstance(value, float))


def prediction(folder, task, reference):
    """The folder where the reference is one, else the one volume in it."""
    if "." not in reference:
        return folder
    return next(path for path in folder.iterdir() if path.suffix == ".tif")


def test_guides_speak_of_options_that_exist(voxloom):
    known = {row["key"] for row in json.loads(voxloom("list", "options", "--json").stdout)}
    sections = {key.split(".")[0] for key in known}
    guides = [*(REPOSITORY / "docs" / f"{name}.md" for name in ("from-python", "predict", "troubleshooting")),
              *(REPOSITORY / "recipes").glob("*/*.md")]
    named = 0
    for guide in guides:
        for line in guide.read_text().splitlines():
            ours = line.rstrip("| ").rsplit("|", 1)[-1]  # of a table the column that is Voxloom's
            for option in re.findall(r"(?:%s)\.[a-z0-9_]+(?:\.[a-z0-9_]+)*" % "|".join(sections), ours):
                if option.endswith((".yaml", ".json", ".csv", ".h5")):
                    continue
                named += 1
                assert option in known or any(key.startswith(option + ".") for key in known), (guide.name, option)
    assert named > 50


SYMPTOMS = ["GPU is not found", "GPU is idle", "Out of memory", "Low GPU use", "larger batch is slower", "Memory grows",
            "NaN in half precision", "first step is slow", "terminal is lost", "Loading is slow", "orientation is wrong"]


def test_every_symptom_has_a_command_that_exists(voxloom):
    sections = (REPOSITORY / "docs" / "troubleshooting.md").read_text().split("\n## ")[1:]
    helps = {}
    for symptom in SYMPTOMS:
        section, = [text for text in sections if symptom in text.splitlines()[0]]
        commands = re.findall(r"^    voxloom (\w+)(.*)", section, re.MULTILINE)
        assert commands, symptom
        for command, rest in commands:
            helps[command] = helps.get(command) or voxloom(command, "--help").stdout
            assert all(flag in helps[command] for flag in re.findall(r"--[a-z-]+", rest)), (symptom, command, rest)
