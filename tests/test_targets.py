"""What loss terms are compared with: refused before data is read where it cannot be, and judged where it can."""
import numpy as np
import pytest

from training import checkpoint, metadata, rows, write_training


@pytest.mark.parametrize("recipe, words", [
    ("loss: {terms: [{name: cross_entropy, target: affinity}]}", "the target affinity has a volume for each channel"),
    ("loss: {terms: [{name: dice, target: signed_distance}]}",
     "dice is for classes, but the target signed_distance has real values; use mse"),
    ("loss: {terms: [{name: bce, target: affinity}]}\nvalidation: {metric: dice}", "known here: loss, loss.bce\n"),
    ("loss: {terms: [{name: bce, target: affinity}]}\nmodel: {out_channels: 2}\nvalidation: {metric: loss}",
     "bce sees 2 channels, but the target affinity has 3; set model.out_channels"),
    ("loss: {terms: [{name: dice, head: a}, {name: mse, head: b, target: signed_distance}]}\n"
     "model: {heads: [{name: a}, {name: b, channels: 2}]}", "mse sees 2 channels, but the target signed_distance has 1"),
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
    assert not (run / "metrics.csv").exists()


def test_affinities_alone_are_validated_by_their_loss(voxloom, draw, tmp_path):
    recipe = write_training(tmp_path, draw, "loss: {terms: [{name: dice, target: affinity}]}\n")
    voxloom("train", recipe, "--run", tmp_path / "run", "model.out_channels=3", "training.max_epochs=1",
            "training.iterations_per_epoch=2")
    (row,) = rows(tmp_path / "run", "val")
    assert 0 < float(row["loss.dice"]) < 1 and row.get("dice", "") == ""
    assert (tmp_path / "run" / "checkpoints" / "best.safetensors").exists()


def test_affinities_with_an_end_that_is_not_seen_are_unknown(voxloom, draw, tmp_path):
    recipe = write_training(tmp_path, draw, "loss: {terms: [{name: bce, target: affinity}]}\n")
    (tmp_path / "masks").mkdir()
    chance = np.random.default_rng(draw.randrange(2**32))
    for file in (tmp_path / "labels").iterdir():
        np.save(tmp_path / "masks" / file.name, (chance.random(np.load(file).shape) < 0.9).astype(np.uint8))
    voxloom("train", recipe, "--run", tmp_path / "run", "model.out_channels=3", "data.mask=masks/{id}.npy",
            "data.patch_size=24,26,28", "training.max_epochs=1", "training.iterations_per_epoch=1", "--export-batches",
            tmp_path)
    label, mask, made = (np.load(tmp_path / f"0.{name}.npy") for name in ("label", "mask", "target.affinity"))
    assert {0, 1, 2} <= set(np.unique(label)) and 0 < mask.mean() < 1
    here = np.where(mask & (label != 2), label.astype(int), -1)[:, 0]  # -1: not seen
    for axis in range(3):
        there = np.roll(here, 1, axis + 1)
        there[(slice(None),) * (axis + 1) + (0,)] = -1
        assert np.array_equal(made[:, axis], np.where((here < 0) | (there < 0), -1, (here == there) & (here != 0)))


def raw_and_written(voxloom, recipe, folder, *overrides):
    """What the network gives of a case, and what `predict --probabilities` writes."""
    voxloom("train", recipe, "--run", folder / "run", "training.max_epochs=1", "data.preprocess=[]", "training.lr=0.1",
            "inference.window=24,26,28", "inference.format=npy", *overrides)
    case, weights = folder / "images" / "case_002.npy", checkpoint(folder / "run", "best")
    np.save(folder / "image.npy", np.load(case).astype(np.float32)[None, None])
    channels = int(metadata(weights)["model.out_channels"])
    voxloom("weights", "forward", weights, folder / "image.npy", folder / "raw.npy", "architecture=unet",
            "in_channels=1", f"out_channels={channels}", "filters=4,8")
    voxloom("predict", folder / "run", case, "--output", folder / "out", "--probabilities")
    written = np.load(folder / "out" / "case_002.npy")
    return np.load(folder / "raw.npy")[0].astype(float), written if channels > 1 else written[None]


@pytest.mark.parametrize("terms", ["{name: dice, target: classes}", "{name: bce}"])
def test_classes_that_were_trained_by_a_sigmoid_each_are_written_so(voxloom, draw, tmp_path, terms):
    recipe = write_training(tmp_path, draw, f"loss:\n  terms: [{terms}]\n"
                            "  targets: [{name: classes, kind: one_hot, classes: [0, 1]}]\n")
    raw, written = raw_and_written(voxloom, recipe, tmp_path, "model.out_channels=2")
    assert np.allclose(written, 1 / (1 + np.exp(-raw)), atol=1e-5)


def test_values_are_written_as_the_loss_compared_them(voxloom, draw, tmp_path):
    recipe = write_training(tmp_path, draw, "loss: {terms: [{name: smooth_l1, tanh: true, target: signed_distance}]}\n")
    raw, written = raw_and_written(voxloom, recipe, tmp_path, "model.out_channels=1")
    assert np.allclose(written, np.tanh(raw), atol=1e-5) and abs(raw).max() > 0.1
    refused = voxloom("predict", tmp_path / "run", tmp_path / "images" / "case_002.npy", "--output", tmp_path / "labels",
                      check=False)
    assert refused.returncode == 1 and "add --probabilities" in refused.stderr, refused.stderr


def test_values_of_foreground_are_cut_at_the_threshold(voxloom, draw, tmp_path):
    recipe = write_training(tmp_path, draw, "loss: {terms: [{name: mse, target: foreground}]}\n")
    raw, _ = raw_and_written(voxloom, recipe, tmp_path, "model.out_channels=1")
    level = float(np.median(raw.round(3))) + 1e-4
    level = min(max(level, 0.01), 0.99)
    voxloom("predict", tmp_path / "run", tmp_path / "images" / "case_002.npy", "--output", tmp_path / "labels",
            "--threshold", str(level))
    found, sure = np.load(tmp_path / "labels" / "case_002.npy"), abs(raw[0] - level) > 1e-5
    assert np.array_equal(found[sure] > 0, raw[0][sure] > level) and sure.mean() > 0.9


@pytest.mark.parametrize("classes", [[1, 2], [2, 1], [2], [1, 0, 2]], ids=str)
def test_labels_of_one_hot_channels_are_the_values_of_their_classes(voxloom, draw, tmp_path, classes):
    recipe = write_training(tmp_path, draw, "loss:\n  terms: [{name: bce, target: classes}, {name: dice, target: classes}]\n"
                            f"  targets: [{{name: classes, kind: one_hot, classes: {classes}}}]\n")
    raw, _ = raw_and_written(voxloom, recipe, tmp_path, f"model.out_channels={len(classes)}", "data.ignore_label=none",
                             "validation.mode=sliding_window")
    voxloom("predict", tmp_path / "run", tmp_path / "images" / "case_002.npy", "--output", tmp_path / "found")
    found, expected = np.load(tmp_path / "found" / "case_002.npy"), np.array(classes)[raw.argmax(0)]
    if 0 not in classes:
        expected = np.where(raw.max(0) > 0, expected, 0)
    sure = np.abs(raw).min(0) > 1e-4
    assert np.array_equal(found[sure], expected[sure]) and sure.mean() > 0.99
    cut = voxloom("predict", tmp_path / "run", tmp_path / "images" / "case_002.npy", "--output", tmp_path / "cut",
                  "--threshold", "0.9")
    assert ("nothing is cut here" in cut.stderr) == (0 in classes)
    if 0 not in classes:
        expected = np.where(raw.max(0) > np.log(9), np.array(classes)[raw.argmax(0)], 0)
    sure = (np.abs(raw).min(0) > 1e-4) & (np.abs(raw - np.log(9)).min(0) > 1e-4)
    assert np.array_equal(np.load(tmp_path / "cut" / "case_002.npy")[sure], expected[sure])
    reference = np.load(tmp_path / "labels" / "case_002.npy")
    reference = np.where(np.isin(reference, classes), reference, 0)
    scores = [2 * np.sum((found == one) & (reference == one)) / (np.sum(found == one) + np.sum(reference == one))
              for one in sorted(set(classes) - {0})]
    assert float(rows(tmp_path / "run", "val")[-1]["dice"]) == pytest.approx(np.mean(scores), abs=1e-3)


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
