"""A training in several processes is the training of one with as many micro-batches a step."""
import os
import pathlib
import signal
import subprocess
import time

import numpy as np
import pytest
from conftest import PROGRAM
from processes import none_is_left, start_program, wait_for_step  # noqa: F401
from training import assert_same_weights, checkpoint, metadata, record, rows, tensors, write_training

SHORT = ["training.max_epochs=3", "training.iterations_per_epoch=8", "training.ema=0.9", "training.schedule=plateau",
         "training.clip_norm=0.5", "monitor.log_every=1", "system.compute_threads=1"]
TEAM = ["--device", "cpu", "system.num_gpus=2"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    import random
    folder = tmp_path_factory.mktemp("team")
    write_training(folder, random.Random(5))
    subprocess.run([PROGRAM, "train", folder / "recipe.yaml", "--run", folder / "one", "--device", "cpu", *SHORT,
                    "training.accumulate=2"], check=True, capture_output=True, timeout=300)
    return folder


def workers_of(process):
    def parent(stat):
        return int(stat.rpartition(")")[2].split()[1])

    found = []
    for status in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            if parent(status.read_text()) == process.pid:
                found.append(int(status.parent.name))
        except OSError:
            pass  # it ended meanwhile
    return found


def values_of(run):
    told = ("step", "loss", "loss.bce", "lr", "grad_norm", "dice")
    return [[row.get(name) for name in told] for row in rows(run)]


def test_two_processes_are_two_micro_batches(trained, voxloom, tmp_path):
    run = tmp_path / "run"
    said = voxloom("train", trained / "recipe.yaml", "--run", run, *SHORT, *TEAM)
    assert "training in 2 processes, each with batches of its own" in said.stdout + said.stderr
    assert_same_weights(checkpoint(run), checkpoint(trained / "one"))
    assert values_of(run) == values_of(trained / "one")
    assert (run / "worker-1.log").read_text() == ""


def test_running_statistics_are_the_mean_of_all_processes(trained, voxloom, tmp_path):
    def first_norm(name, *options):
        voxloom("train", trained / "recipe.yaml", "--run", tmp_path / name, "training.max_epochs=1",
                "training.iterations_per_epoch=1", "model.architecture=monai_unet", "--device", "cpu",
                "system.compute_threads=1", *options)
        found = tensors(checkpoint(tmp_path / name))
        return [found[f"model.model.0.conv.unit0.adn.N.running_{what}"].astype(float) for what in ("mean", "var")]

    one, both, team = first_norm("one"), first_norm("both", "training.accumulate=2"), first_norm("team", "system.num_gpus=2")
    for alone, after_both, averaged, start in zip(one, both, team, (0, 1)):
        second = 0.9 * start + after_both - 0.9 * alone  # after the second batch alone, with MONAI's momentum of 0.1
        np.testing.assert_allclose(averaged, (alone + second) / 2, rtol=1e-5, atol=1e-5)


def test_stopped_and_gone_on_it_is_the_same(trained, voxloom, tmp_path):
    run = tmp_path / "run"
    command = ["train", trained / "recipe.yaml", "--run", run, *SHORT, *TEAM]
    process = start_program(*command)
    wait_for_step(run, 3, process)
    workers = workers_of(process)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode in (143, 0)
    assert not any(os.path.exists(f"/proc/{worker}") for worker in workers)
    refused = voxloom("train", trained / "recipe.yaml", "--run", run, *SHORT, "--device", "cpu", check=False)
    if process.returncode == 143:
        assert refused.returncode == 1 and "system.num_gpus: 2 -> auto" in refused.stderr
    voxloom("train", trained / "recipe.yaml", "--run", run, *SHORT, *TEAM)
    assert_same_weights(checkpoint(run), checkpoint(trained / "one"))


def start_long(trained, run):
    """A team that does not end by itself, once it is under way."""
    process = start_program("train", trained / "recipe.yaml", "--run", run, *SHORT, *TEAM,
                            "training.iterations_per_epoch=5000")
    wait_for_step(run, 2, process)
    return process


def test_it_goes_on_from_where_its_files_are_now(trained, voxloom, tmp_path):
    run, weights = tmp_path / "run", tmp_path / "begin.safetensors"
    voxloom("weights", "export", checkpoint(trained / "one"), "--output", weights)
    options = ["train", trained / "recipe.yaml", "--run", run, *TEAM, "training.iterations_per_epoch=4",
               f"model.weights={weights}"]
    voxloom(*options, "training.max_epochs=1")
    weights.unlink()  # where it began
    voxloom(*options, "training.max_epochs=2", "--force")
    other = ["validation.metric=loss", "training.max_epochs=3", "--force", "--resume", checkpoint(run, "best")]
    voxloom(*options, *other)  # a best by another measure is set aside before the others read it
    assert record(run)["state"] == "finished" and metadata(checkpoint(run))["step"] == "12"


def test_a_signal_to_every_process_of_a_job_saves_and_stops(trained, tmp_path):
    run = tmp_path / "run"
    process = start_long(trained, run)
    for sent in (signal.SIGUSR1, signal.SIGTERM):
        for one in (*workers_of(process), process.pid):
            os.kill(one, sent)
    said = process.communicate(timeout=60)[1]
    assert process.returncode == 143, said
    assert checkpoint(run).exists() and record(run)["state"] == "stopped"


def test_a_process_that_dies_is_named_and_costs_a_checkpoint_at_most(trained, voxloom, tmp_path):
    run = tmp_path / "run"
    process = start_long(trained, run)
    os.kill(workers_of(process)[0], signal.SIGKILL)
    said = process.communicate(timeout=60)[1]
    assert process.returncode == 3
    assert "worker 1 of the training ended by signal 9" in said and str(run / "worker-1.log") in said
    assert record(run)["state"] == "failed"


def test_when_the_leader_dies_nobody_is_left(trained, tmp_path):
    run = tmp_path / "run"
    process = start_long(trained, run)
    workers = workers_of(process)
    assert len(workers) == 1
    process.kill()
    process.wait(timeout=60)
    for _ in range(200):
        if not os.path.exists(f"/proc/{workers[0]}"):
            return
        time.sleep(0.05)
    pytest.fail("the follower lives on")


def test_processes_that_would_train_on_other_cases_do_not(draw, tmp_path):
    """One image is read from the standard output, which is another file for each process."""
    recipe, image = write_training(tmp_path, draw), tmp_path / "images" / "case_001.npy"
    image.rename(tmp_path / "image.npy")
    image.symlink_to("/proc/self/fd/1")
    with open(tmp_path / "image.npy", "r+b") as output:
        ended = subprocess.run([PROGRAM, "train", recipe, "--run", tmp_path / "run", *SHORT, *TEAM,
                                "data.on_bad_case=skip"], stdout=output, stderr=subprocess.PIPE, text=True, timeout=60)
    assert ended.returncode == 3, ended.stderr
    assert "trains on other cases than the first one: case case_001 is left out here" in ended.stderr


@pytest.mark.parametrize("options, sentence", [
    ([*TEAM, "loss.terms=[{name: topology, delay: 2}]"], "has a delay, and system.num_gpus is above 1"),
    ([*TEAM, "data.label=nowhere/*.tif"], "nowhere"),
])
def test_what_cannot_be_is_one_sentence(trained, voxloom, tmp_path, options, sentence):
    refused = voxloom("train", trained / "recipe.yaml", "--run", tmp_path / "run", *SHORT, *options, check=False)
    assert refused.returncode == 1 and sentence in refused.stderr
    assert not (tmp_path / "run").exists()
