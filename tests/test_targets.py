"""What loss terms are compared with: refused before data is read where it cannot be, and judged where it can."""
import numpy as np
import pytest

from training import rows, write_training


@pytest.mark.parametrize("recipe, words", [
    ("loss: {terms: [{name: cross_entropy, target: affinity}]}", "the target affinity has a volume for each channel"),
    ("loss: {terms: [{name: bce, target: affinity}]}\nvalidation: {metric: dice}", "known here: loss, loss.bce\n"),
    ("data: {root: ., labels: [0, 1, 2]}\nmodel: {out_channels: 2}", "has class 2 but the network has 2 channels"),
])
def test_a_dry_run_refuses_what_cannot_be_compared(voxloom, tmp_path, recipe, words):
    (tmp_path / "wrong.yaml").write_text(recipe + "\n")
    refused = voxloom("train", "wrong.yaml", "--dry-run", check=False, cwd=tmp_path)
    assert refused.returncode == 1 and words in refused.stderr, refused.stderr


def test_unlabelled_voxels_that_no_channel_is_for_are_refused_before_the_first_step(voxloom, draw, tmp_path):
    recipe = write_training(tmp_path, draw)
    run = tmp_path / "run"
    refused = voxloom("train", recipe, "--run", run, "data.ignore_label=-1", "model.out_channels=2", check=False)
    assert refused.returncode == 1 and "the label has class 2 but the network has 2 channels" in refused.stderr
    assert rows(run) == []


def test_affinities_alone_are_validated_by_their_loss(voxloom, draw, tmp_path):
    recipe = write_training(tmp_path, draw, "loss: {terms: [{name: dice, target: affinity}]}\n")
    voxloom("train", recipe, "--run", tmp_path / "run", "model.out_channels=3", "training.max_epochs=1",
            "training.iterations_per_epoch=2")
    (row,) = rows(tmp_path / "run", "val")
    assert 0 < float(row["loss.dice"]) < 1 and row.get("dice", "") == ""
    assert (tmp_path / "run" / "checkpoints" / "best.safetensors").exists()


HEADS = """
loss:
  terms:
    - {name: bce, head: foreground, target: foreground}
    - {name: bce, head: border, target: boundary}
"""


def test_labels_come_from_the_head_of_the_label_and_heads_are_probabilities_of_their_own(voxloom, draw, tmp_path):
    recipe = write_training(tmp_path, draw, HEADS)
    heads = "model.heads=[{name: border, channels: 1}, {name: foreground, channels: 1}]"
    voxloom("train", recipe, "--run", tmp_path / "run", heads, "training.max_epochs=1", "inference.format=npy")
    case = tmp_path / "images" / "case_002.npy"
    voxloom("predict", tmp_path / "run", case, "--output", tmp_path / "labels")
    voxloom("predict", tmp_path / "run", case, "--output", tmp_path / "chances", "--probabilities")
    chances, labels = (np.load(tmp_path / name / "case_002.npy") for name in ("chances", "labels"))
    assert chances.shape[0] == 2 and abs(chances.sum(0) - 1).max() > 0.01
    assert np.array_equal(labels, chances[1] > 0.5) and 0 < labels.mean() < 1


def test_affinities_alone_make_no_labels_but_objects(voxloom, draw, tmp_path):
    recipe = write_training(tmp_path, draw, "loss: {terms: [{name: bce, target: affinity}]}\n")
    voxloom("train", recipe, "--run", tmp_path / "run", "model.out_channels=3", "training.max_epochs=1",
            "training.iterations_per_epoch=2")
    case = tmp_path / "images" / "case_002.npy"
    refused = voxloom("predict", tmp_path / "run", case, "--output", tmp_path / "out", check=False)
    assert refused.returncode == 1 and "there are no labels to predict; add --probabilities" in refused.stderr
    for mirrored in ("--tta", "inference.tta=mirror"):
        refused = voxloom("predict", tmp_path / "run", case, "--output", tmp_path / "out", mirrored, check=False)
        assert refused.returncode == 1 and "the target affinity tell directions" in refused.stderr
    voxloom("predict", tmp_path / "run", case, "--output", tmp_path / "out",
            "inference.postprocess=[{name: mutex_watershed}]")
