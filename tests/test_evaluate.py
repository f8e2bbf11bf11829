"""voxloom evaluate --task segmentation against NumPy."""
import csv
import json

import numpy as np
import pytest

nibabel = pytest.importorskip("nibabel")
tifffile = pytest.importorskip("tifffile")


def expected(prediction, reference, ignored=None):
    """Per class from boolean masks; the mean over the classes that occur in either."""
    valid = np.ones(reference.shape, bool) if ignored is None else reference != ignored
    labels = sorted((set(np.unique(prediction[valid])) | set(np.unique(reference[valid]))) - {0}) or [1]

    def ratio(a, b, both_empty):
        return 1.0 if both_empty else float(a / b) if b else 0.0

    classes = {}
    for label in labels:
        p, r = (prediction == label) & valid, (reference == label) & valid
        both, empty = (p & r).sum(), not (p | r).any()
        classes[str(label)] = {"dice": ratio(2 * both, p.sum() + r.sum(), empty), "iou": ratio(both, (p | r).sum(), empty),
                               "precision": ratio(both, p.sum(), empty), "recall": ratio(both, r.sum(), empty)}
    values = {name: np.mean([scores[name] for scores in classes.values()]) for name in ("dice", "iou", "precision", "recall")}
    return values, classes


def assert_scores(scores, truth):
    values, classes = truth
    assert {name: scores[name] for name in values} == pytest.approx(values, abs=1e-12)
    assert set(scores["classes"]) == set(classes)
    for label, of_class in classes.items():
        assert {name: scores["classes"][label][name] for name in of_class} == pytest.approx(of_class, abs=1e-12), label


def evaluate(voxloom, prediction, reference, *more, **options):
    return voxloom("evaluate", "--task", "segmentation", "--prediction", prediction, "--reference", reference, *more,
                   **options)


def labels(draw, shape, count, dtype=np.uint8):
    return np.random.default_rng(draw.randrange(2**32)).integers(0, count, shape).astype(dtype)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.int16, np.float32])
@pytest.mark.parametrize("count", [2, 5])
def test_two_files(voxloom, draw, tmp_path, dtype, count):
    shape = tuple(draw.randrange(3, 20) for _ in range(3))
    prediction, reference = labels(draw, shape, count, dtype), labels(draw, shape, count)
    np.save(tmp_path / "guess.npy", prediction)
    tifffile.imwrite(tmp_path / "s12.tif", reference, photometric="minisblack")
    result = json.loads(evaluate(voxloom, tmp_path / "guess.npy", tmp_path / "s12.tif", "--json").stdout)
    assert list(result["cases"]) == ["s12"]
    assert_scores(result["cases"]["s12"], expected(prediction.astype(int), reference))
    assert result["mean"] == result["cases"]["s12"]


def test_folders_are_matched_by_id_across_formats(voxloom, draw, tmp_path):
    predictions, references = tmp_path / "p", tmp_path / "r"
    predictions.mkdir(), references.mkdir()
    (references / "notes.txt").write_text("no volume")
    truths = {}
    for case in ("a", "b.1", "c"):
        shape = tuple(draw.randrange(3, 20) for _ in range(3))
        p, r = labels(draw, shape, 2), labels(draw, shape, 3)
        tifffile.imwrite(predictions / f"{case}.tif", p, photometric="minisblack")
        nibabel.save(nibabel.Nifti1Image(r.transpose(2, 1, 0), np.eye(4)), references / f"{case}.nii.gz")
        truths[case] = expected(p, r, ignored=2)
    result = json.loads(evaluate(voxloom, predictions, references, "--ignore-label", 2, "--json").stdout)
    assert set(result["cases"]) == set(truths)
    for case, truth in truths.items():
        assert_scores(result["cases"][case], truth)
    for name in ("dice", "iou", "precision", "recall"):
        assert result["mean"][name] == pytest.approx(np.mean([values[name] for values, _ in truths.values()]))
    table = evaluate(voxloom, predictions, references, "--ignore-label", 2, "--csv", tmp_path / "scores.csv").stdout
    assert f"{result['mean']['dice']:.4f}" in table and "b.1" in table
    rows = list(csv.DictReader((tmp_path / "scores.csv").open()))
    assert [row["case"] for row in rows] == sorted(truths)
    assert list(rows[0])[:7] == ["case", *table.split("\n")[0].split()[1:]], "the scores of the table come first"
    for row in rows:
        values, classes = truths[row["case"]]
        assert {name: float(row[name]) for name in values} == pytest.approx(values)
        assert float(row["1.dice"]) == pytest.approx(classes["1"]["dice"])


def test_cases_whose_ids_have_folders_are_matched_within_them(voxloom, draw, tmp_path):
    same, other = labels(draw, (4, 5, 6), 2), labels(draw, (4, 5, 6), 2)
    for side, second in (("p", other), ("r", same)):
        for case, values in (("s1/5", same), ("s2/a/5", second)):
            (tmp_path / side / case).parent.mkdir(parents=True, exist_ok=True)
            np.save(tmp_path / side / f"{case}.npy", values)
    result = json.loads(evaluate(voxloom, tmp_path / "p", tmp_path / "r", "--json").stdout)
    assert result["cases"]["s1/5"]["dice"] == 1
    assert_scores(result["cases"]["s2/a/5"], expected(other, same))
    np.save(tmp_path / "r" / "5.npy", same)  # a folder of volumes is those
    np.save(tmp_path / "p" / "5.npy", same)
    assert set(json.loads(evaluate(voxloom, tmp_path / "p", tmp_path / "r", "--json").stdout)["cases"]) == {"5"}


def test_empty_masks(voxloom, tmp_path):
    empty, full = np.zeros((3, 4, 5), np.uint8), np.ones((3, 4, 5), np.uint8)
    np.save(tmp_path / "empty.npy", empty), np.save(tmp_path / "full.npy", full)
    for p, r, dice in (("empty", "empty", 1), ("empty", "full", 0), ("full", "empty", 0), ("full", "full", 1)):
        result = json.loads(evaluate(voxloom, tmp_path / f"{p}.npy", tmp_path / f"{r}.npy", "--json").stdout)
        assert result["mean"]["dice"] == dice and result["mean"]["iou"] == dice, (p, r)


def test_a_volume_of_many_slabs(voxloom, draw, tmp_path):
    shape = (40, 500, 500)  # more than two slabs
    prediction, reference = labels(draw, shape, 3), labels(draw, shape, 3)
    np.save(tmp_path / "p.npy", prediction), np.save(tmp_path / "r.npy", reference)
    result = json.loads(evaluate(voxloom, tmp_path / "p.npy", tmp_path / "r.npy", "--json").stdout)
    assert_scores(result["cases"]["r"], expected(prediction, reference))


@pytest.fixture
def folders(tmp_path, draw):
    """Case a is fine; b differs in shape; c has no prediction; d has no reference; e is no label volume; f is cut short."""
    predictions, references = tmp_path / "p", tmp_path / "r"
    predictions.mkdir(), references.mkdir()
    good = labels(draw, (4, 5, 6), 2)
    for case in "abdef":
        np.save(predictions / f"{case}.npy", good)
    for case in "abcef":
        np.save(references / f"{case}.npy", good)
    np.save(predictions / "b.npy", good[1:])
    np.save(predictions / "e.npy", good * np.float32(0.5))
    cut = (references / "f.npy").read_bytes()[:-7]
    (references / "f.npy").write_bytes(cut)
    return predictions, references


def test_keep_going_scores_the_rest_and_names_every_failure(voxloom, folders):
    result = evaluate(voxloom, *folders, "--keep-going", "--json", check=False)
    assert result.returncode == 1
    found = json.loads(result.stdout)
    assert list(found["cases"]) == ["a"] and found["cases"]["a"]["dice"] == 1
    assert set(found["failures"]) == set("bcdef")
    assert "3x5x6" in found["failures"]["b"] and "4x5x6" in found["failures"]["b"]
    assert "no prediction" in found["failures"]["c"] and "no reference" in found["failures"]["d"]
    assert "0.5" in found["failures"]["e"] and "f.npy" in found["failures"]["f"]
    assert "5 of 6 cases" in result.stderr


def test_a_subset_is_what_was_predicted_and_nothing_else_is_missed(voxloom, folders):
    predictions, references = folders
    for case in "bef":
        (predictions / f"{case}.npy").unlink()
    extra = evaluate(voxloom, *folders, "--subset", "--json", check=False)
    assert extra.returncode == 1 and "case d" in extra.stderr and "no reference" in extra.stderr
    (predictions / "d.npy").unlink()
    assert "--subset" in evaluate(voxloom, *folders, "--json", check=False).stderr
    found = json.loads(evaluate(voxloom, *folders, "--subset", "--json").stdout)
    assert list(found["cases"]) == ["a"] and found["mean"]["dice"] == 1 and not found.get("failures")


def test_the_first_failure_ends_it_otherwise(voxloom, folders):
    result = evaluate(voxloom, *folders, "--json", check=False)
    assert result.returncode == 1 and result.stdout == "" and "3x5x6" in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_labels_that_do_not_fit_are_refused(voxloom, tmp_path):
    one = np.ones((3, 4, 5), np.uint8)
    np.save(tmp_path / "one.npy", one), np.save(tmp_path / "white.npy", one * 255), np.save(tmp_path / "two.npy", one * 2)
    result = evaluate(voxloom, tmp_path / "white.npy", tmp_path / "one.npy", check=False)
    assert result.returncode == 1 and "unknown labels" in result.stderr and "255" in result.stderr
    result = evaluate(voxloom, tmp_path / "two.npy", tmp_path / "one.npy", "--ignore-label", 2, check=False)
    assert result.returncode == 1 and "ignore label 2" in result.stderr
    np.save(tmp_path / "negative.npy", one.astype(np.int16) * -1)
    result = evaluate(voxloom, tmp_path / "one.npy", tmp_path / "negative.npy", check=False)
    assert result.returncode == 1 and "-1" in result.stderr
    np.save(tmp_path / "instances.npy", np.arange(1, 301, dtype=np.uint16).reshape(3, 10, 10))
    result = evaluate(voxloom, tmp_path / "instances.npy", tmp_path / "instances.npy", check=False)
    assert result.returncode == 1 and "instances" in result.stderr


def test_volumes_that_point_different_ways_are_refused(voxloom, draw, tmp_path):
    values = labels(draw, (6, 7, 8), 3)
    nibabel.save(nibabel.Nifti1Image(values, np.diag([1, 1, 2, 1])), tmp_path / "r.nii")
    nibabel.save(nibabel.Nifti1Image(values[::-1], np.diag([-1, 1, 2, 1])), tmp_path / "p.nii")  # the same in the world
    result = evaluate(voxloom, tmp_path / "p.nii", tmp_path / "r.nii", check=False)
    assert result.returncode == 1 and "LAS" in result.stderr and "RAS" in result.stderr and "r.nii" in result.stderr
    voxloom("convert", tmp_path / "p.nii", tmp_path / "turned.nii", "--orientation", "RAS")
    result = json.loads(evaluate(voxloom, tmp_path / "turned.nii", tmp_path / "r.nii", "--json").stdout)
    assert result["mean"]["dice"] == 1


def test_a_folder_and_a_file_are_refused(voxloom, folders, tmp_path):
    result = evaluate(voxloom, folders[0], folders[1] / "a.npy", check=False)
    assert result.returncode == 1 and "two folders" in result.stderr
    (tmp_path / "bare").mkdir()
    result = evaluate(voxloom, tmp_path / "bare", folders[1], check=False)
    assert result.returncode == 1 and "no volume" in result.stderr
    for reference in (folders[1] / "a.npy", folders[1]):
        result = evaluate(voxloom, tmp_path / "missing.npy", reference, check=False)
        assert result.returncode == 1 and "missing.npy: there is no such file or folder" in result.stderr


def test_an_unknown_task_is_a_wrong_command_line(voxloom, tmp_path):
    result = voxloom("evaluate", "--task", "other", "--prediction", tmp_path, "--reference", tmp_path, check=False)
    assert result.returncode == 2 and "segmentation" in result.stderr
