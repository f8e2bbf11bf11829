"""Training: against PyTorch with the same batches, and what it promises about batches, bad steps and its command line."""
import json
import os
import re
import signal

import numpy as np
import pytest
import tifffile
import torch
import yaml
from dynamic_network_architectures.architectures.unet import PlainConvUNet
from processes import none_is_left, start_program  # noqa: F401
from safetensors.torch import load_file
from training import checkpoint, dice, record, rows, tensors, write_training


def plain_network(filters, inputs=1, outputs=1):
    return PlainConvUNet(inputs, len(filters), filters, torch.nn.Conv3d, 3, [1] + [2] * (len(filters) - 1), 2, outputs, 2,
                         conv_bias=True, norm_op=torch.nn.InstanceNorm3d,
                         norm_op_kwargs={"eps": 1e-5, "affine": True}, nonlin=torch.nn.LeakyReLU,
                         nonlin_kwargs={"inplace": True})


def peer_network(weights, filters):
    """nnU-Net's own network with the weights that a run started from."""
    network = plain_network(filters)
    missing, unexpected = network.load_state_dict(weights, strict=False)
    assert not unexpected and all("decoder.encoder" in name or "all_modules" in name for name in missing)
    return network


def peer_loss(logits, label):
    """Soft Dice of each sample + binary cross entropy, over the voxels that somebody labelled."""
    valid, target = (label != 2).float(), (label == 1).float()
    entropy = torch.nn.functional.binary_cross_entropy_with_logits(logits, target, reduction="none")
    entropy = (entropy * valid).sum() / valid.sum()
    probability, target, axes = torch.sigmoid(logits) * valid, target * valid, (1, 2, 3, 4)
    overlap = (2 * (probability * target).sum(axes) + 1e-5) / (probability.sum(axes) + target.sum(axes) + 1e-5)
    return entropy + 1 - overlap.mean()


def test_the_loss_curve_is_that_of_pytorch(voxloom, draw, tmp_path):
    recipe = write_training(tmp_path, draw)
    run, batches = tmp_path / "run", tmp_path / "batches"
    voxloom("train", recipe, "--run", run, "--export-batches", batches, "training.max_epochs=1",
            "training.iterations_per_epoch=50", "monitor.log_every=1", "training.warmup_steps=0", "training.lr=0.003")
    ours = np.array([float(row["loss"]) for row in rows(run)])
    network = peer_network(load_file(batches / "weights.safetensors"), [4, 8])
    optimizer = torch.optim.AdamW(network.parameters(), lr=0.003, weight_decay=1e-5)
    schedule = torch.optim.lr_scheduler.PolynomialLR(optimizer, total_iters=50, power=0.9)
    peers = []
    for step in range(50):
        image = torch.from_numpy(np.load(batches / f"{2 * step}.image.npy"))
        label = torch.from_numpy(np.load(batches / f"{2 * step}.label.npy"))
        loss = peer_loss(network(image), label)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 12)
        optimizer.step()
        schedule.step()
        peers.append(loss.item())
    assert len(ours) == 50 and ours[-10:].mean() < 0.9 * ours[0]  # single batches differ by more
    assert np.abs(ours - peers).max() < 1e-3


def test_one_patch_is_learnt_by_heart(voxloom, draw, tmp_path):
    recipe = write_training(tmp_path, draw)
    image = np.load(tmp_path / "images" / "case_000.npy")[4:20, 4:20, 4:20]
    label = np.load(tmp_path / "labels" / "case_000.npy")[4:20, 4:20, 4:20]
    np.save(tmp_path / "images" / "case_000.npy", image)
    np.save(tmp_path / "labels" / "case_000.npy", label)
    voxloom("train", recipe, "--run", tmp_path / "run", "data.train=[case_000]", "augmentation.enabled=false",
            "data.batch_size=1", "training.max_epochs=1", "training.iterations_per_epoch=250", "model.filters=8,16",
            "training.lr=0.02", "validation.every=0")
    voxloom("predict", tmp_path / "run", tmp_path / "images" / "case_000.npy", "--output", tmp_path / "out")
    assert dice(tifffile.imread(tmp_path / "out" / "case_000.tif"), label) >= 0.99


def test_accumulation_is_the_large_batch(voxloom, draw, tmp_path):
    recipe = write_training(tmp_path, draw)
    # SGD: Adam divides by the gradient's size, and would blow the rounding of a vanishing one up to a whole step.
    options = ["training.max_epochs=1", "training.iterations_per_epoch=2", "training.optimizer=sgd",
               "data.ignore_label=-1", "validation.every=0"]
    for path in (tmp_path / "labels").iterdir():
        label = np.load(path)
        np.save(path, np.where(label == 2, 0, label).astype(np.uint8))
    voxloom("train", recipe, "--run", tmp_path / "large", *options, "data.batch_size=4")
    voxloom("train", recipe, "--run", tmp_path / "parts", *options, "data.batch_size=2", "training.accumulate=2")
    voxloom("train", recipe, "--run", tmp_path / "singles", *options, "data.batch_size=1", "training.accumulate=4")
    large = tensors(checkpoint(tmp_path / "large"))
    for other in ("parts", "singles"):
        for name, values in tensors(checkpoint(tmp_path / other)).items():
            # Rounding grows from step to step; shifts begin at 0 and are sums that nearly cancel, so that theirs counts
            # beside a weight's usual size.
            usual = 0.01 * np.sqrt(values.size)
            difference = np.linalg.norm(values - large[name])
            assert difference < 1e-3 * max(np.linalg.norm(large[name]), usual), (other, name)


def test_prediction_is_that_of_pytorch_with_the_averaged_weights(voxloom, draw, tmp_path):
    recipe = write_training(tmp_path, draw)
    voxloom("train", recipe, "--run", tmp_path / "run", "training.ema=0.9", "training.max_epochs=1",
            "inference.window=24,24,24")
    volume = np.load(tmp_path / "images" / "case_002.npy")[:24, :24, :24]
    np.save(tmp_path / "crop.npy", volume)
    voxloom("predict", tmp_path / "run", tmp_path / "crop.npy", "--output", tmp_path / "out", "--probabilities")
    ours = tifffile.imread(tmp_path / "out" / "crop.tif")
    stored = tensors(checkpoint(tmp_path / "run"))
    image = (volume.astype(np.float64) - volume.mean()) / volume.std()  # one window, so nothing is blended
    peers = {}
    for kind in ("ema", "model"):
        weights = {name[len(kind) + 1:]: torch.from_numpy(values) for name, values in stored.items()
                   if name.startswith(kind + ".")}
        with torch.no_grad():
            logits = peer_network(weights, [4, 8]).eval()(torch.from_numpy(image)[None, None].float())
        peers[kind] = torch.sigmoid(logits)[0, 0].numpy()
    assert np.abs(ours - peers["ema"]).max() < 1e-3
    assert np.abs(ours - peers["model"]).max() > 1e-3


def test_steps_that_are_not_finite_change_nothing_and_stop_the_run(voxloom, draw, tmp_path):
    recipe = write_training(tmp_path, draw)
    huge = np.load(tmp_path / "images" / "case_001.npy").astype(np.float32) * np.float32(1e36)  # finite, until summed
    np.save(tmp_path / "images" / "case_001.npy", huge)
    result = voxloom("train", recipe, "--run", tmp_path / "run", "data.preprocess=[]", "training.max_bad_steps=3",
                     "training.max_epochs=1", "training.iterations_per_epoch=200", check=False)
    assert result.returncode == 1
    assert "3 steps in a row" in result.stderr and "loss." in result.stderr and "case_001" in result.stderr
    bad = [json.loads(line) for line in (tmp_path / "run" / "bad_steps.jsonl").read_text().splitlines()]
    assert len(bad) >= 3
    for one in bad:
        assert one["samples"] == [2 * (one["step"] - 1), 2 * (one["step"] - 1) + 1]
        assert "case_001" in one["cases"]
    steps = [one["step"] for one in bad]
    assert steps[-1] - steps[-3] == 2
    assert record(tmp_path / "run")["state"] == "failed"
    assert all(np.isfinite(values).all() for values in tensors(checkpoint(tmp_path / "run")).values())


def test_a_row_is_the_mean_of_all_steps_since_the_last(voxloom, draw, tmp_path):
    """Values are fetched every max_bad_steps; an epoch with one row has that row's speed."""
    recipe = write_training(tmp_path, draw)
    voxloom("train", recipe, "--run", tmp_path / "run", "training.max_epochs=1", "training.iterations_per_epoch=20",
            "monitor.log_every=20", "training.max_bad_steps=3", "validation.every=0")
    row, = rows(tmp_path / "run")
    told = re.search(r"epoch 1/1 .* ([0-9.]+) samples/s", (tmp_path / "run" / "log.txt").read_text())[1]
    assert float(row["samples_per_s"]) == pytest.approx(float(told), rel=0.01)
    assert float(row["step_ms"]) == pytest.approx(2000 / float(told), rel=0.01)


@pytest.mark.parametrize("precision", ["32", "16-mixed"])
def test_histograms_are_of_the_gradients_whose_norm_is_told(voxloom, draw, tmp_path, precision):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    recipe = write_training(tmp_path, draw)
    voxloom("train", recipe, "--run", tmp_path / "run", f"training.precision={precision}", "training.max_epochs=1",
            "training.iterations_per_epoch=3", "monitor.log_every=1", "monitor.gradient_histograms=true",
            "loss.terms=[{name: bce, weight: 0.01}]")  # small, so that nothing overflows
    events = accumulator.EventAccumulator(str(tmp_path / "run"), size_guidance={"histograms": 0}).Reload()
    found = [events.Histograms(tag)[-1] for tag in events.Tags()["histograms"] if tag.startswith("gradient/")]
    assert found and all(event.step == 3 for event in found)
    norm = np.sqrt(sum(event.histogram_value.sum_squares for event in found))
    assert norm == pytest.approx(float(rows(tmp_path / "run")[-1]["grad_norm"]), rel=1e-3)


def test_a_path_that_no_checkpoint_can_hold_is_refused_before_there_is_a_run(voxloom, draw, tmp_path):
    recipe = write_training(tmp_path, draw)
    link = os.fsdecode(os.fsencode(tmp_path) + b"/daten-f\xfcr-mich")
    os.symlink(tmp_path, link)
    refused = voxloom("train", recipe, "--run", tmp_path / "run", f"data.root={link}", check=False)
    assert refused.returncode == 1 and not (tmp_path / "run").exists()
    assert "data.root is" in refused.stderr and "daten-f?r-mich" in refused.stderr and "UTF-8" in refused.stderr


def test_a_rehearsal_leaves_nothing_behind_and_tells_the_times(voxloom, draw, tmp_path):
    recipe = write_training(tmp_path, draw)
    result = voxloom("train", recipe, "--fast-dev-run", "4", "training.max_epochs=7", cwd=tmp_path)
    for words in ("step ", "epoch ", "total ", "steps that fit", "median of 4", "7 epochs", "10 steps"):
        assert words in result.stdout, words
    assert not (tmp_path / "runs").exists()
    result = voxloom("train", "--fast-dev-run", recipe, "training.max_epochs=7", cwd=tmp_path)
    assert "median of 10" in result.stdout


def test_a_rehearsal_that_is_interrupted_says_so(draw, tmp_path):
    recipe = write_training(tmp_path, draw)
    process = start_program("train", recipe, "--fast-dev-run", "1000000")
    assert "step 3" in next(line for line in process.stderr if line.startswith("step 3"))
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 130 and "steps that fit" in said


def test_without_progress_nothing_but_warnings_is_said(voxloom, draw, tmp_path):
    recipe = write_training(tmp_path, draw)
    said = voxloom("train", recipe, "--run", tmp_path / "run", "monitor.progress=off", "training.max_epochs=2",
                   "training.iterations_per_epoch=2", "validation.mode=sliding_window", "inference.window=16")
    assert all(line.startswith("warning: ") for line in said.stderr.splitlines()), said.stderr


def test_a_dry_run_prints_a_recipe_that_reads_back_to_itself(voxloom, draw, tmp_path):
    recipe = write_training(tmp_path, draw)
    first = voxloom("train", recipe, "--dry-run", "training.lr=0.125").stdout
    (tmp_path / "resolved.yaml").write_text(first)
    assert "lr: 0.125" in first
    assert voxloom("train", tmp_path / "resolved.yaml", "--dry-run").stdout == first


@pytest.mark.parametrize("key, value, words", [
    ("loss", "{terms: [{name: bce}, {name: dise}]}", "Did you mean dice?"),
    ("loss", "{terms: [{name: dice, smoth: 1}]}", 'smoth (wrong.yaml:2): unknown option; did you mean "smooth"?'),
    ("loss", "{terms: [{name: bce, target: skelton}]}", 'no target is called "skelton"'),
    ("data", "{sampler: unifrom}", 'data.sampler "unifrom" is unknown; known: '),
    ("validation", "{metric: dcie}", "known here: loss, loss.dice"),
    ("augmentation", "{gamma: {enabled: true, range: [2, 1]}}", "augmentation.gamma.range"),
    ("augmentation", "{gamma: {enabled: true, prob: 1.0e-4, balanced: true, range: [2, 3]}}", "must hold 1"),
])
def test_a_dry_run_refuses_wrong_names_and_options_without_data(voxloom, tmp_path, key, value, words):
    (tmp_path / "wrong.yaml").write_text("data: {root: .}\n" * (key != "data") + f"{key}: {value}\n")
    refused = voxloom("train", "wrong.yaml", "--dry-run", check=False, cwd=tmp_path)
    assert refused.returncode == 1 and refused.stdout == "" and words in refused.stderr, refused.stderr


def test_a_shift_over_half_a_window_is_refused_before_training(voxloom, tmp_path):
    (tmp_path / "r.yaml").write_text("data: {root: ., patch_size: [16, 16, 32]}\ninference: {shift: [0, 8, 17]}\n")
    for flags in (["--dry-run"], ["--run", "run"]):
        refused = voxloom("train", "r.yaml", *flags, check=False, cwd=tmp_path)
        assert refused.returncode == 1 and not (tmp_path / "run").exists()
        assert "inference.shift is 0x8x17, but the window is 16x16x32" in refused.stderr
    for accepted in ("inference.shift=0,8,16", "inference.window=16,16,34"):
        voxloom("train", "r.yaml", "--dry-run", "model.in_channels=1", "model.out_channels=1", accepted, cwd=tmp_path)


@pytest.mark.parametrize("setting, words", [
    ("model.architecture=unte", 'no network is called "unte"'),
    ("model.in_channels=3", "but the images have 1 channels"),
    ("data.padding=none", "the patch 16x16x32 is larger than the volume 24x26x28"),
])
def test_a_dry_run_refuses_what_the_run_would_refuse_and_with_its_sentence(voxloom, draw, tmp_path, setting, words):
    recipe = write_training(tmp_path, draw)
    dry, run = (voxloom("train", recipe, setting, "data.patch_size=16,16,32", *flags, check=False).stderr.splitlines()[-1]
                for flags in (["--dry-run"], ["--run", tmp_path / "run"]))
    assert words in dry and dry.removeprefix("voxloom: ") in run


@pytest.mark.parametrize("arguments, status, words", [
    (["system.num_gpus=2"], 1, "system.num_gpus is 2, but"),
    (["data.patch_size=15,16,16"], 1, "15"),
    (["--device", "tpu"], 1, "cpu, cuda"),
    (["--no-such-option"], 2, "no-such-option"),
    (["training.lrr=1"], 1, "training.lr"),
    (["one", "two"], 2, "one"),
    (["model.norm=batch", "data.batch_size=1", "data.patch_size=2"], 1, "one value per channel"),
    (["data.label="], 1, "case case_000 has no label"),
    (["model.file=own.pt"], 1, "model.architecture is unet; set it to torchscript"),
    (["training.min_lr=1"], 1, "above training.lr"),
    (["data.images=", "data.label=", "data.train=a,b", "data.validation=",
      "data.cases=[{id: a, images: [images/case_000.npy], label: labels/case_000.npy}, "
      "{id: b, images: [images/case_001.npy], label: labels/case_001.npy, mask: labels/case_001.npy}]"], 1,
     "case b has a label and a mask, but case a has a label and no mask"),
])
def test_wrong_input_is_one_clear_sentence(voxloom, draw, tmp_path, arguments, status, words):
    recipe = write_training(tmp_path, draw)
    result = voxloom("train", recipe, *arguments, "--run", tmp_path / "run", check=False)
    assert result.returncode == status and words in result.stderr, result.stderr


def test_a_run_without_a_name_gets_the_next_number(voxloom, draw, tmp_path):
    recipe = write_training(tmp_path, draw)
    for _ in range(2):
        voxloom("train", recipe, "training.max_epochs=1", "training.iterations_per_epoch=2", cwd=tmp_path)
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["recipe-001", "recipe-002"]


def test_an_epoch_may_be_a_duration_and_is_fixed_once_measured(voxloom, draw, tmp_path):
    recipe = write_training(tmp_path, draw)
    voxloom("train", recipe, "--run", tmp_path / "run", "training.iterations_per_epoch=1s", "training.max_epochs=2")
    from training import metadata
    facts = metadata(checkpoint(tmp_path / "run"))
    assert int(facts["step"]) == 2 * int(facts["steps_per_epoch"]) > 0


def test_settings_that_do_nothing_are_said(voxloom, draw, tmp_path):
    recipe = write_training(tmp_path, draw)
    said = voxloom("train", recipe, "--run", tmp_path / "run", "training.early_stop=2", "validation.every=0",
                   "training.max_epochs=1", "training.warmup_steps=1000").stderr
    assert "training.early_stop has no effect" in said and "never reaches training.lr" in said
    assert "no effect" not in voxloom("train", recipe, "--run", tmp_path / "plain", "training.max_epochs=1").stderr


def test_a_missing_folder_for_temporary_files_is_said(voxloom, draw, tmp_path):
    recipe = write_training(tmp_path, draw)
    result = voxloom("train", recipe, "--fast-dev-run", "1", check=False, env={"TMPDIR": str(tmp_path / "none")})
    assert result.returncode == 1 and "TMPDIR" in result.stderr and "mistake" not in result.stderr


def test_a_dry_run_shows_the_layers_and_what_a_step_needs(voxloom, draw, tmp_path):
    recipe = write_training(tmp_path, draw)
    shown = voxloom("train", recipe, "--dry-run", "model.in_channels=1", "model.out_channels=2").stdout
    assert yaml.safe_load(shown)["model"]["filters"] == [4, 8]  # the table is a comment
    table = [line.split()[1:] for line in shown.splitlines() if line.startswith("# ") and line.endswith(tuple("0123456789"))]
    layers = {name: (output, int(parameters), float(gmac)) for name, output, parameters, gmac in
              (row for row in table if len(row) == 4)}
    # 4 channels in, 8 out, 3^3 kernels and biases, on 2 samples of 8^3 places
    assert layers["encoder.stages.1.0.convs.0.conv"] == ("2x8x8x8x8", 27 * 4 * 8 + 8, round(2 * 27 * 4 * 8 * 8**3 * 1e-9, 3))
    assert layers["decoder.seg_layers.0"][1] == 4 * 2 + 2
    assert "memory about" in shown
    # weights and Adam's two averages of 4,794 numbers; two cases of 24x26x28 bytes, and their labels
    assert f"{3 * 4794 * 4 / 1024:.1f} KiB while a checkpoint is copied" in shown
    assert f"at most {2 * 2 * 24 * 26 * 28 / 1024:.1f} KiB" in shown
    refused = voxloom("train", recipe, "--dry-run", "data.patch_size=15", check=False)
    assert refused.returncode == 1 and "multiples of 2x2x2" in refused.stderr and refused.stdout == ""


def test_the_memory_of_activations_is_what_pytorch_keeps(voxloom, draw, tmp_path):
    recipe = write_training(tmp_path, draw)
    filters = [8, 16, 32]
    shown = voxloom("train", recipe, "--dry-run", "model.in_channels=1", "model.out_channels=1", "data.patch_size=32",
                    f"model.filters={filters}").stdout
    counted = re.search(r"activations ([\d.]+) MiB", shown)
    network = plain_network(filters)
    kept = {}

    def keep(tensor):  # the graph holds it, so that no two share an address
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    image = torch.randn(2, 1, 32, 32, 32)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        output = network(image)
    for held in (*network.parameters(), image):  # weights and the batch are counted elsewhere
        kept.pop(held.untyped_storage().data_ptr(), None)
    assert output.shape == image.shape
    assert float(counted[1]) * 2**20 == pytest.approx(sum(kept.values()), rel=0.15)


def test_a_run_that_fails_again_has_the_newest_reason(voxloom, draw, tmp_path):
    recipe, run = write_training(tmp_path, draw), tmp_path / "run"
    for option, reason in (("model.in_channels=3", "model.in_channels is 3"), ("model.in_channels=4", "is 4")):
        voxloom("train", recipe, "--run", run, option, check=False)
        assert record(run)["state"] == "failed" and reason in record(run)["reason"]
