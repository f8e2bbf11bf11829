"""Validations: what they measure, and what is the best by them."""
import numpy as np
import pytest
import tifffile
import torch
from safetensors.torch import load_file, save_file
from training import checkpoint, dice, rows, write_training


def test_early_stopping_and_best_by_a_metric(voxloom, draw, tmp_path):
    recipe = write_training(tmp_path, draw)
    command = ["train", recipe, "--run", tmp_path / "run", "training.early_stop=2", "training.lr=1e-30",
               "training.max_epochs=20", "training.iterations_per_epoch=2", "validation.metric=loss",
               "training.warmup_steps=0"]
    why = "training.early_stop: loss no better in 2 validations"
    assert f"Finished at step 6 ({why}); best loss" in voxloom(*command).stdout
    voxloom(*command)  # it stays so
    assert f"finished: {why}" in voxloom("status", tmp_path / "run").stdout
    scores = rows(tmp_path / "run", "val")
    assert len(scores) == 3  # nothing is learnt: the first is the best, two more without gain end it
    assert {"dice", "iou", "loss"} <= {name for name, value in scores[0].items() if value}


def test_a_validation_measures_every_term_once_whatever_its_every(voxloom, draw, tmp_path):
    recipe = write_training(tmp_path, draw, "loss: {terms: [{name: dice, every: 8, start_step: 6}, {name: bce, weight: 0.5}]}\n")
    voxloom("train", recipe, "--run", tmp_path / "run", "training.iterations_per_epoch=4")  # after 4, 8 and 12 steps
    scores = [{name: float(row[name]) for name in ("loss", "loss.dice", "loss.bce")}
              for row in rows(tmp_path / "run", "val")]
    assert len(scores) == 3
    for row in scores:
        assert row["loss"] == pytest.approx(row["loss.dice"] + 0.5 * row["loss.bce"], rel=1e-5)


def test_where_no_voxel_counts_a_validation_has_no_score(voxloom, draw, tmp_path):
    recipe = write_training(tmp_path, draw)
    label = tmp_path / "labels" / "case_002.npy"
    np.save(label, np.full_like(np.load(label), 2))  # all of it ignored
    for mode in ("patches", "sliding_window"):
        run = tmp_path / mode
        said = voxloom("train", recipe, "--run", run, f"validation.mode={mode}", "training.max_epochs=1").stderr
        assert "this validation has no dice" in said
        assert all(not row["dice"] for row in rows(run, "val") if "dice" in row)
        assert checkpoint(run).exists() and not checkpoint(run, "best").exists()


def test_a_network_that_is_not_finite_has_no_score(voxloom, draw, tmp_path):
    """It predicts nothing, which of an empty patch would be Dice 1."""
    recipe = write_training(tmp_path, draw)
    label = tmp_path / "labels" / "case_002.npy"
    np.save(label, np.zeros_like(np.load(label)))
    short = ["training.max_epochs=1", "training.iterations_per_epoch=2"]
    voxloom("train", recipe, "--run", tmp_path / "good", *short, "--export-batches", tmp_path / "out")
    weights = load_file(tmp_path / "out" / "weights.safetensors")
    save_file({name: torch.full_like(value, torch.nan) for name, value in weights.items()}, tmp_path / "bad.safetensors")
    for mode in ("patches", "sliding_window"):
        said = voxloom("train", recipe, "--run", tmp_path / mode, *short, f"validation.mode={mode}",
                       f"model.weights={tmp_path}/bad.safetensors").stderr
        assert "this validation has no dice" in said and not checkpoint(tmp_path / mode, "best").exists()


def test_the_largest_label_is_a_class_like_others(voxloom, draw, tmp_path):
    recipe = write_training(tmp_path, draw)
    for path in (tmp_path / "labels").iterdir():
        label = np.load(path) % 2  # the ball
        label[:, :, 14:][label[:, :, 14:] == 0] = 255  # everything else in one half
        np.save(path, label)
    voxloom("train", recipe, "--run", tmp_path / "run", "data.ignore_label=none", "loss.terms=[{name: cross_entropy}]",
            "training.max_epochs=1", "training.iterations_per_epoch=20", "training.lr=0.02",
            "validation.mode=sliding_window")
    voxloom("predict", tmp_path / "run", "--split", "validation", "--output", tmp_path / "out")
    ours, label = tifffile.imread(tmp_path / "out" / "case_002.tif"), np.load(tmp_path / "labels" / "case_002.npy")
    assert np.any((ours == 255) & (label != 255)) and np.any((ours == 255) & (label == 255))
    there = [c for c in range(1, 256) if np.any(ours == c) or np.any(label == c)]
    expected = np.mean([2 * np.sum((ours == c) & (label == c)) / (np.sum(ours == c) + np.sum(label == c)) for c in there])
    assert float(rows(tmp_path / "run", "val")[-1]["dice"]) == pytest.approx(expected, abs=1e-6)


def test_validation_by_sliding_window(voxloom, draw, tmp_path):
    recipe = write_training(tmp_path, draw)
    voxloom("train", recipe, "--run", tmp_path / "run", "validation.mode=sliding_window", "training.max_epochs=1",
            "training.ema=0.5")
    voxloom("predict", tmp_path / "run", "--split", "validation", "--output", tmp_path / "out")
    expected = dice(tifffile.imread(tmp_path / "out" / "case_002.tif"), np.load(tmp_path / "labels" / "case_002.npy"))
    assert float(rows(tmp_path / "run", "val")[-1]["dice"]) == pytest.approx(expected, abs=1e-6)
    assert list((tmp_path / "run" / "images").glob("*.png"))
    assert (tmp_path / "run" / "report.html").exists()
