"""Scores of the recipes: measured at toy size, kept as rows, shown in the READMEs by a script."""
import csv
import json
import subprocess
import sys

import numpy as np
import pytest
import tifffile
from conftest import PROGRAM, REPOSITORY

sys.path.insert(0, str(REPOSITORY / "tools"))
import recipe_scores  # noqa: E402


def entry(run, dose, dvh, commit="abc1234", case="", recipe="openkbp_dose/best", options=""):
    return {"recipe": recipe, "case": case, "run": run, "scores": {"dose score (Gy)": dose, "DVH score (Gy)": dvh},
            "steps": 2400, "training_s": 61.5, "options": options, "machine": "a GPU, 16 CPUs", "commit": commit,
            "date": "2026-01-02"}


@pytest.fixture
def place(tmp_path, monkeypatch):
    (tmp_path / "recipes" / "openkbp_dose").mkdir(parents=True)
    readme = tmp_path / "recipes" / "openkbp_dose" / "README.md"
    readme.write_text(f"# dose\n\n{recipe_scores.BEGIN}\n{recipe_scores.END}\nafter\n")
    monkeypatch.setattr(recipe_scores, "REPOSITORY", tmp_path)
    monkeypatch.setattr(recipe_scores, "RESULTS", tmp_path / "recipes.csv")

    def record(*entries, check=False):
        file = tmp_path / "scores.json"
        file.write_text(json.dumps(entries))
        arguments = type("Arguments", (), {"files": [file] if entries else [], "check": check})
        return recipe_scores.record(arguments), readme.read_text()

    return record


def test_rows_and_tables_follow_what_was_measured(place, tmp_path):
    assert place()[1].count("Not measured yet") == 1
    place(entry("seed 0", 9, 9, commit="older"))
    status, text = place(entry("seed 0", 3.1, 1.9), entry("seed 1", 3.3, 2.0), entry("seed 2", 3.2, 1.8))
    assert status == 0 and text.endswith("after\n")
    assert "| seed 1 | 3.300 | 2.000 | 2,400 | 62 |" in text
    assert "| mean of 3 (least to greatest) | 3.200 (3.100 to 3.300) | 1.900 (1.800 to 2.000) | 2,400 | 62 |" in text
    assert "a GPU, 16 CPUs; commit abc1234, 2026-01-02." in text and "older" not in text, "of each run the newest"
    with (tmp_path / "recipes.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 8 and rows[-1]["score"] == "DVH score (Gy)" and float(rows[-1]["value"]) == 1.8


def test_a_stale_table_is_noticed(place, tmp_path):
    place(entry("seed 0", 3.1, 1.9))
    assert place(check=True)[0] == 0
    path = tmp_path / "recipes.csv"
    path.write_text(path.read_text().replace("3.1", "3.05"))
    status, text = place(check=True)
    assert status == 1 and "3.100" in text, "it only checks"


def test_cases_are_lines_of_their_own(place):
    seeds = [entry(f"seed {seed}", 3 + seed, 2, case=case) for seed in (0, 1) for case in ("plain", "+ term")]
    text = place(*seeds)[1]
    assert "| plain, 2 runs | 3.500 (3.000 to 4.000) |" in text and "| + term, 2 runs |" in text
    assert "| seed 0 |" not in text


def test_variants_by_which_a_recipe_is_chosen_are_lines_of_their_own(place):
    variants = [entry(f"fold {fold}", dose + fold, 1.5, case=case, recipe="openkbp_dose/inner")
                for case, dose in (("as it is", 3.5), ("`training.ema=0.999`", 3.25)) for fold in (0, 1)]
    for one in variants:
        one["training_s"] = ""
    text = place(entry("seed 0", 3.1, 1.9), *variants)[1]
    assert "| `best.yaml` | dose score (Gy) |" in text and "| seed 0 | 3.100 | 1.900 | 2,400 | 62 |" in text
    assert "| `best.yaml`, folds of its training data | dose score (Gy) |" in text
    assert "| as it is, 2 runs | 4.000 (3.500 to 4.500) | 1.500 (1.500 to 1.500) | 2,400 |  |" in text
    assert "| `training.ema=0.999`, 2 runs | 3.750 (3.250 to 4.250) |" in text
    assert text.count("runs without shared the machine") == 1


def test_where_experiments_have_a_page_the_readme_keeps_the_recipes_own_scores(place, tmp_path):
    page = tmp_path / "recipes" / "openkbp_dose" / recipe_scores.EXPERIMENTS
    page.write_text(f"{recipe_scores.BEGIN}\n{recipe_scores.END}\n")
    entries = [entry("seed 0", 3.1, 1.9), entry("seed 0", 3.4, 1.7, case="wider"),
               entry("fold 0", 3.6, 1.5, case="as it is", recipe="openkbp_dose/inner")]
    readme = place(*entries)[1]
    experiments = page.read_text()
    lines = ["| seed 0 | 3.100 | 1.900 |", "| wider, seed 0 | 3.400 | 1.700 |", "| as it is, fold 0 | 3.600 | 1.500 |"]
    assert [line in readme for line in lines] == [True, False, False]
    assert [line in experiments for line in lines] == [False, True, True]
    assert place(check=True)[0] == 0
    page.write_text(experiments.replace("3.600", "3.500"))
    assert place(check=True)[0] == 1


def test_recipes_of_a_folder_are_lines_of_one_table(place, tmp_path):
    page = tmp_path / "recipes" / "scroll_surface" / "README.md"
    page.parent.mkdir()
    page.write_text(f"{recipe_scores.BEGIN}\n{recipe_scores.END}\n")
    place(*[entry("seed 0", score, 0.5, case=f"{name}.yaml", recipe="scroll_surface/recipes")
            for name, score in (("train", 0.7), ("nnunet", 0.6))])
    text = page.read_text()
    assert "| recipe |" in text
    assert text.index("| train.yaml, seed 0 | 0.700 |") < text.index("| nnunet.yaml, seed 0 | 0.600 |")


def test_each_scroll_recipe_is_trained_from_its_own_file():
    runs = recipe_scores.MEASUREMENTS["scroll_surface/recipes"].runs
    files = {recipe_scores.recipe_file("scroll_surface/recipes", case) for case, _, _ in runs}
    folder = REPOSITORY / "recipes" / "scroll_surface"
    assert files == set(folder.glob("*.yaml")) - {folder / "terms.yaml"}
    options, = [options for case, _, options in runs if case == "persistence.yaml"]
    terms, = [option for option in options if option.startswith("loss.terms=")]
    assert terms.count("{name: ") == (folder / "persistence.yaml").read_text().count("- {name: ")
    assert "start_step: 1000" in terms


def test_the_readmes_have_the_scores_of_the_results():
    result = subprocess.run([sys.executable, REPOSITORY / "tools" / "recipe_scores.py", "record", "--check"],
                            capture_output=True, text=True)
    assert result.returncode == 0, result.stdout


def test_a_recipe_is_measured_from_training_to_score(tmp_path):
    subprocess.run([PROGRAM, "synth", "scroll", tmp_path / "data", "--count", "40", "--size", "32", "--seed", "4"],
                   check=True, capture_output=True)
    toy = ["training.max_epochs=1", "training.iterations_per_epoch=2", "training.precision=32", "model.filters=2,2,2,2",
           "data.patch_size=32", "training.warmup_steps=1", "data.num_workers=1", "system.num_cpus=2"]
    subprocess.run([sys.executable, REPOSITORY / "tools" / "recipe_scores.py", "measure", "scroll_surface/terms",
                    "--program", PROGRAM, "--data", tmp_path / "data", "--output", tmp_path / "scores.json", "--folder",
                    tmp_path / "runs", "--first", "17", "--runs", "19", "--jobs", "2", *toy], check=True,
                   capture_output=True)
    term, threshold = json.loads((tmp_path / "scores.json").read_text())
    assert (term["case"], term["steps"], term["run"], term["training_s"]) == ("+ topology", 2, "seed 2", "")
    assert (threshold["case"], threshold["steps"]) == ("best global threshold", 0)
    assert all(0 <= value <= 1 for value in [*term["scores"].values(), *threshold["scores"].values()])
    assert term["options"] == " ".join(toy)
    images, labels = (np.stack([tifffile.imread(tmp_path / "data" / f"train_{kind}" / f"scroll_{number:03d}.tif")
                                for number in range(32, 40)]) for kind in ("images", "labels"))
    counted, truth = labels != 2, labels == 1

    def dice(mask):
        return 2 * (mask & truth).sum() / ((mask & counted).sum() + truth.sum())

    written = np.stack([np.load(tmp_path / "runs" / "scroll_surface-terms-18" / "predictions" / f"scroll_{number:03d}.npy")
                        for number in range(32, 40)]).astype(bool)
    assert dice(written) == max(dice(images >= level) for level in range(256)), "no other level is better"


@pytest.mark.parametrize("gain, verdict", [(0.3, "yes: +0.300, seeds differ by 0.200"),
                                           (0.1, "no: +0.100, seeds differ by 0.200"),
                                           (-0.3, "no, worse: -0.300, seeds differ by 0.200")])
def test_a_term_beats_the_plain_ones_by_more_than_seeds_differ(place, gain, verdict):
    text = place(*[entry(f"seed {seed}", 0.5 + 0.1 * seed + more, 0, case=case) for seed in range(3)
                   for case, more in (("bce + dice", 0), ("+ term", gain))])[1]
    assert f"| 2,400 | 62 | {verdict} |" in text and "| 2,400 | 62 |  |" in text
