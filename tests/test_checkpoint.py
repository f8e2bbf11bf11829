"""Checkpoints: what is in them, that damage is noticed, and that a reader never sees half of one."""
import os
import random
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from training import checkpoint, metadata, record, tensors, write_training


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    import subprocess

    from conftest import PROGRAM
    folder = tmp_path_factory.mktemp("checkpoint")
    recipe = write_training(folder, random.Random(1))
    command = [PROGRAM, "train", recipe, "--run", folder / "run", "training.save_every=1", "training.keep_last=2",
               "training.ema=0.9"]
    subprocess.run(command, check=True, capture_output=True)
    return folder


def test_it_is_one_safetensors_file_with_all_that_a_run_needs(trained):
    path = checkpoint(trained / "run")
    stored = tensors(path)
    model = {name[6:] for name in stored if name.startswith("model.")}
    assert model == {name[4:] for name in stored if name.startswith("ema.")}
    slots = {name for name in stored if name.startswith("optimizer.")}
    assert slots and all(name.endswith((".exp_avg", ".exp_avg_sq")) for name in slots)
    assert {name[len("optimizer."):].rsplit(".", 1)[0] for name in slots} <= model
    facts = metadata(path)
    assert facts["step"] == "30" and facts["optimizer.count"] == "30"
    assert {"format_version", "config", "schedule", "early_stop", "bad_steps", "micro_batch", "compute_threads",
            "kernel_choices", "skipped_cases", "best_score"} <= facts.keys()


def test_last_best_and_the_last_epochs_are_kept(trained):
    names = {path.name for path in (trained / "run" / "checkpoints").iterdir()}
    assert {"last.safetensors", "best.safetensors", "epoch-0002.safetensors", "epoch-0003.safetensors"} <= names
    assert "epoch-0001.safetensors" not in names
    assert os.path.samefile(checkpoint(trained / "run"), checkpoint(trained / "run", "epoch-0003"))


def test_epochs_shorter_than_writing_leave_the_checkpoints_that_were_asked_for(voxloom, tmp_path):
    from plants import checkpoint_every_step
    recipe = checkpoint_every_step(tmp_path, random.Random(2))
    voxloom("train", recipe, "--run", tmp_path / "run", "training.max_epochs=12", "training.save_every=5",
            "validation.every=0")
    steps = {path.stem: metadata(path)["step"] for path in (tmp_path / "run" / "checkpoints").iterdir()}
    assert steps["last"] == "12" and steps["epoch-0005"] == "5" and steps["epoch-0010"] == "10", steps


def test_a_flipped_bit_anywhere_is_noticed(trained, voxloom, draw, tmp_path):
    whole = bytearray(checkpoint(trained / "run").read_bytes())
    header = 8 + int.from_bytes(whole[:8], "little")
    places = [draw.randrange(8), draw.randrange(8, header), header, len(whole) - 1]
    places += [draw.randrange(header) for _ in range(6)] + [draw.randrange(header, len(whole)) for _ in range(10)]
    damaged = tmp_path / "damaged.safetensors"
    for place in places:
        changed = bytearray(whole)
        changed[place] ^= 1 << draw.randrange(8)
        damaged.write_bytes(changed)
        result = voxloom("predict", damaged, trained / "images" / "case_000.npy", "--output", tmp_path, check=False)
        assert result.returncode == 1 and str(damaged) in result.stderr, (place, result.stderr)
    for length in (0, 7, header - 1, len(whole) - 1):
        damaged.write_bytes(whole[:length])
        result = voxloom("predict", damaged, trained / "images" / "case_000.npy", "--output", tmp_path, check=False)
        assert result.returncode == 1 and str(damaged) in result.stderr


def start_from(voxloom, trained, folder, weights, *overrides):
    return voxloom("train", trained / "recipe.yaml", "--run", folder / "run", "--export-batches", folder / "out",
                   f"model.weights={weights}", "training.max_epochs=1", "training.iterations_per_epoch=1",
                   "validation.every=0", *overrides, check=False)


@pytest.mark.parametrize("stripped", [False, True])
def test_another_run_starts_from_its_weights_not_from_their_average(trained, voxloom, tmp_path, stripped):
    path = checkpoint(trained / "run")
    if stripped:  # of its metadata
        save_file(load_file(path), tmp_path / "w.safetensors")
    result = start_from(voxloom, trained, tmp_path, tmp_path / "w.safetensors" if stripped else path)
    assert result.returncode == 0 and "drawn afresh" not in result.stderr and "skipped" not in result.stderr
    stored, started = tensors(path), tensors(tmp_path / "out" / "weights.safetensors")
    assert all(np.array_equal(values, stored["model." + name]) for name, values in started.items())
    assert any(not np.array_equal(values, stored["ema." + name]) for name, values in started.items())


def test_what_another_network_does_not_find_in_it_is_said(trained, voxloom, tmp_path):
    path = checkpoint(trained / "run")
    result = start_from(voxloom, trained, tmp_path, path, "model.architecture=resenc_unet")
    assert result.returncode == 0, result.stderr
    stored = {name[6:]: values for name, values in tensors(path).items() if name.startswith("model.")}
    started = tensors(tmp_path / "out" / "weights.safetensors")
    shared = started.keys() & stored.keys()
    assert shared and all(np.array_equal(started[name], stored[name]) for name in shared)
    for said in (result.stderr, (tmp_path / "run" / "log.txt").read_text()):
        assert f"not in the file, drawn afresh: {len(started) - len(shared)} of the network's {len(started)}" in said
        assert f"not in the network, skipped: {len(stored) - len(shared)} of the file's tensors (" in said


def test_a_network_that_finds_nothing_in_it_is_refused(trained, voxloom, tmp_path):
    path = checkpoint(trained / "run")
    result = start_from(voxloom, trained, tmp_path, path, "model.architecture=monai_unet")
    assert result.returncode == 1 and str(path) in result.stderr
    assert "none of the weights belongs to this network" in result.stderr


def damage(path, place=-100):
    """A copy, so that hard links to the same file stay whole."""
    whole = bytearray(path.read_bytes())
    whole[place] ^= 4
    path.unlink()
    path.write_bytes(whole)


def test_the_one_before_a_damaged_one_is_used_and_the_damaged_one_named(trained, voxloom, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(trained / "run", run)
    for name in ("last", "epoch-0003", "best"):
        damage(checkpoint(run, name))
    result = voxloom("train", trained / "recipe.yaml", "--run", run, "training.save_every=1", "training.keep_last=2",
                     "training.ema=0.9")
    assert "last.safetensors" in result.stderr and "damaged" in result.stderr
    assert record(run)["processes"][-1]["first_step"] == 21
    ended, expected = tensors(checkpoint(run)), tensors(checkpoint(trained / "run"))
    assert all(np.array_equal(ended[name], expected[name]) for name in expected)


def test_a_run_of_damaged_checkpoints_is_an_error_that_names_them(trained, voxloom, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(trained / "run", run)
    for path in (run / "checkpoints").iterdir():
        damage(path)
    result = voxloom("train", trained / "recipe.yaml", "--run", run, "training.save_every=1", "training.keep_last=2",
                     "training.ema=0.9", check=False)
    assert result.returncode == 1
    assert "last.safetensors" in result.stderr and "--resume never" in result.stderr


def test_a_disk_that_is_full_is_a_failure_of_the_machine(trained, voxloom, tmp_path):
    import resource

    def small_files():
        import signal
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # a write beyond the limit then fails as on a full disk
        resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))
    result = voxloom("train", trained / "recipe.yaml", "--run", tmp_path / "run", "monitor.tensorboard=false",
                     "model.filters=16,32", "training.iterations_per_epoch=2", check=False, preexec_fn=small_files)
    assert result.returncode == 3, result.stderr
    assert "last.safetensors" in result.stderr
    assert not checkpoint(tmp_path / "run").exists()
