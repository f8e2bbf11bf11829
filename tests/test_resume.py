"""A run that was stopped, by whatever means and with whatever threads, ends as one that never was."""
import json
import os
import shutil
import signal
import subprocess

import pytest
from conftest import PROGRAM
from processes import last_step, none_is_left, runnable_threads, start_program, wait_for_step, wait_until  # noqa: F401
from training import assert_same_weights, checkpoint, metadata, record, rows, tensors, write_training

LONG = ["training.max_epochs=4", "training.iterations_per_epoch=25", "training.ema=0.9", "training.schedule=plateau",
        "system.compute_threads=2"]
ENDLESS = [*LONG, "training.iterations_per_epoch=2000", "monitor.log_every=1"]  # until the test stops it


def start(recipe, run, *options):
    return start_program("train", recipe, "--run", run, *options)


def end_of(process, seconds=60):
    """What it printed and what it complained of."""
    return process.communicate(timeout=seconds)


def finish(recipe, run, *options):
    command = [PROGRAM, "train", recipe, "--run", run, *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def wait_for_steps(run, steps, process):
    """Until this process has brought the run at least so many steps further than it was."""
    is_its_own = lambda: (run / "run.json").exists() and record(run)["processes"][-1]["pid"] == process.pid
    if not wait_until(is_its_own, process):
        return
    before = last_step(run)
    wait_until(lambda: last_step(run) >= before + steps, process)


def wait_for_checkpoint(run, process):
    assert wait_until(lambda: checkpoint(run).exists(), process), process.stderr.read()


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    import random
    folder = tmp_path_factory.mktemp("resume")
    recipe = write_training(folder, random.Random(2))
    finish(recipe, folder / "run", *LONG)
    return folder


def test_stops_at_random_steps_with_other_threads_change_no_bit(unbroken, draw, tmp_path):
    run = tmp_path / "run"
    statuses = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGKILL: -9}
    for number in range(6):
        how = [signal.SIGINT, signal.SIGTERM, signal.SIGKILL][number % 3]
        process = start(unbroken / "recipe.yaml", run, *LONG, f"data.num_workers={draw.randrange(1, 5)}",
                        "monitor.log_every=1", f"data.prefetch_factor={draw.randrange(1, 4)}")
        wait_for_steps(run, draw.randrange(1, 16), process)
        process.send_signal(how)
        error = end_of(process)[1]
        assert process.returncode in (statuses[how], 0), error
    finish(unbroken / "recipe.yaml", run, *LONG, "data.num_workers=3")
    assert_same_weights(checkpoint(run), checkpoint(unbroken / "run"))
    steps = [int(row["step"]) for row in rows(run)]
    assert steps == sorted(set(steps))
    processes = [one for one in record(run)["processes"] if one["last_step"]]
    assert processes[-1]["last_step"] == 100 and len(processes) >= 2  # a slow test may find it further than it asked
    for before, after in zip(processes, processes[1:]):
        assert after["first_step"] <= before["last_step"] + 1
        if not before["how"].startswith("killed"):
            assert after["first_step"] == before["last_step"] + 1  # what was done is not done again


def test_sigusr1_saves_and_goes_on_and_sighup_is_nothing(unbroken, tmp_path):
    run = tmp_path / "run"
    process = start(unbroken / "recipe.yaml", run, *ENDLESS)
    wait_for_steps(run, 3, process)
    assert not checkpoint(run).exists()
    process.send_signal(signal.SIGHUP)
    process.send_signal(signal.SIGUSR1)
    wait_for_checkpoint(run, process)
    wait_for_steps(run, 3, process)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == 130


def test_two_processes_cannot_write_one_run(unbroken, voxloom, tmp_path):
    run = tmp_path / "run"
    process = start(unbroken / "recipe.yaml", run, *ENDLESS)
    wait_for_steps(run, 1, process)
    second = voxloom("train", unbroken / "recipe.yaml", "--run", run, *ENDLESS, check=False)
    assert second.returncode == 1 and str(run) in second.stderr
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=60) == 143


def test_a_changed_configuration_is_shown_and_refused(unbroken, voxloom, tmp_path):
    run = tmp_path / "run"
    process = start(unbroken / "recipe.yaml", run, *ENDLESS)
    wait_for_steps(run, 2, process)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == 130
    refused = voxloom("train", unbroken / "recipe.yaml", "--run", run, *ENDLESS, "training.lr=0.5", check=False)
    assert refused.returncode == 1
    assert "training.lr" in refused.stderr and "0.5" in refused.stderr and "--force" in refused.stderr
    assert record(run)["state"] == "stopped"  # as before: nothing was done to it
    forced = voxloom("train", unbroken / "recipe.yaml", "--run", run, *LONG[2:], "training.max_epochs=1",
                     "training.iterations_per_epoch=6", "--force")
    assert "training.max_epochs" in forced.stderr


def test_a_finished_run_says_how_to_go_on(unbroken, voxloom):
    before = checkpoint(unbroken / "run").read_bytes()
    again = voxloom("train", unbroken / "recipe.yaml", "--run", unbroken / "run", *LONG)
    assert "max_epochs" in again.stdout
    assert checkpoint(unbroken / "run").read_bytes() == before


def test_voxloom_stop_ends_a_run_that_then_goes_on(unbroken, voxloom, tmp_path):
    run = tmp_path / "run"
    process = start(unbroken / "recipe.yaml", run, *ENDLESS)
    wait_for_steps(run, 2, process)
    voxloom("stop", run)
    assert process.wait(timeout=60) == 0
    assert record(run)["state"] == "stopped"
    assert checkpoint(run).exists()


def test_a_checkpoint_can_start_a_run_of_its_own(unbroken, voxloom, tmp_path):
    voxloom("train", unbroken / "recipe.yaml", "--run", tmp_path / "run", *LONG, "training.save_every=1",
            "training.keep_last=9", "training.max_epochs=2", "training.iterations_per_epoch=4")
    options = [*LONG, "training.save_every=1", "training.keep_last=9", "training.max_epochs=2",
               "training.iterations_per_epoch=4"]
    voxloom("train", unbroken / "recipe.yaml", "--run", tmp_path / "branch", *options, "--resume",
            checkpoint(tmp_path / "run", "epoch-0001"))
    assert record(tmp_path / "branch")["processes"][-1]["first_step"] == 5
    assert_same_weights(checkpoint(tmp_path / "run"), checkpoint(tmp_path / "branch"))
    last = checkpoint(tmp_path / "run")
    refused = voxloom("train", unbroken / "recipe.yaml", "--run", tmp_path / "empty", *options, "--resume", last,
                      check=False)
    assert refused.returncode == 1 and f"{last} is from is finished (2 epochs" in refused.stderr
    assert record(tmp_path / "empty")["state"] == "failed"


def test_a_run_is_gone_on_from_at_its_newest_checkpoint(unbroken, voxloom, tmp_path):
    """Not at its best, which prediction takes."""
    options = [*LONG, "training.iterations_per_epoch=3", "training.lr=1e-30", "training.warmup_steps=0"]  # 1 is the best
    voxloom("train", unbroken / "recipe.yaml", "--run", tmp_path / "run", *options, "training.max_epochs=3")
    assert int(metadata(checkpoint(tmp_path / "run", "best"))["step"]) == 3
    voxloom("train", unbroken / "recipe.yaml", "--run", tmp_path / "branch", *options, "--force",
            "--resume", tmp_path / "run")
    assert record(tmp_path / "branch")["processes"][-1]["first_step"] == 10


def test_what_a_run_goes_back_behind_is_kept_aside(unbroken, voxloom, tmp_path):
    """Else the next start would take it up again, as the newest."""
    run = tmp_path / "run"
    options = ["train", unbroken / "recipe.yaml", "--run", run, *LONG, "system.compute_threads=1",
               "training.iterations_per_epoch=3", "training.save_every=1"]
    voxloom(*options, "training.max_epochs=3")
    checkpoint(run, "best").unlink()  # whichever it was: now it is the last
    os.link(checkpoint(run, "epoch-0003"), checkpoint(run, "best"))
    other = ["training.lr=0.001", "--force"]
    said = voxloom(*options, "training.max_epochs=2", *other, "--resume", checkpoint(run, "epoch-0001"))
    assert "checkpoints-before-1" in said.stderr
    steps = {path.stem: int(metadata(path)["step"]) for path in (run / "checkpoints-before-1").glob("*.safetensors")}
    assert steps.items() >= {"last": 9, "best": 9, "epoch-0002": 6, "epoch-0003": 9}.items()
    assert len(rows(run / "checkpoints-before-1", "val")) == 3
    steps = {path.stem: int(metadata(path)["step"]) for path in (run / "checkpoints").iterdir()}
    assert steps.items() >= {"last": 6, "epoch-0001": 3, "epoch-0002": 6}.items() and max(steps.values()) == 6
    assert steps["best"] == json.loads(metadata(checkpoint(run))["early_stop"])["best_step"]
    voxloom(*options, "training.max_epochs=3", *other)
    assert record(run)["processes"][-1]["first_step"] == 7


def test_a_run_that_went_on_from_a_file_says_how_to_go_on(unbroken, voxloom, tmp_path):
    file = checkpoint(unbroken / "run")
    process = start(unbroken / "recipe.yaml", tmp_path / "run", *ENDLESS, "training.max_epochs=9", "--force",
                    "--resume", file)
    wait_for_steps(tmp_path / "run", 1, process)
    process.send_signal(signal.SIGTERM)
    said = end_of(process)[0]
    assert process.returncode == 143
    assert f"the same command with --run {tmp_path / 'run'} and without --resume goes on" in said


def test_forced_a_run_goes_on_with_another_batch_and_with_an_average(unbroken, voxloom, tmp_path):
    run = tmp_path / "run"
    options = ["train", unbroken / "recipe.yaml", "--run", run, "training.iterations_per_epoch=3"]
    voxloom(*options, "data.batch_size=4", "training.max_epochs=1")
    voxloom(*options, "data.batch_size=2", "training.max_epochs=2", "training.ema=0.999", "training.lr=1e-30", "--force")
    assert metadata(checkpoint(run))["micro_batch"] == "2"
    found = tensors(checkpoint(run))
    averages = [name for name in found if name.startswith("ema.")]
    assert averages
    for name in averages:  # they began at the weights, which no longer change
        assert abs(found[name] - found["model." + name[4:]]).max() < 1e-6


SLOW = ["inference.overlap=0.95", "inference.tta=mirror"]  # a validation takes longer than the test
JUDGED = [*LONG, "training.max_epochs=2", "training.iterations_per_epoch=5", "training.early_stop=5",
          "validation.mode=sliding_window", "inference.window=16", "monitor.log_every=1", "system.compute_threads=1"]


@pytest.fixture(scope="module")
def judged(unbroken):
    finish(unbroken / "recipe.yaml", unbroken / "judged", *JUDGED)
    return unbroken / "judged"


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_validation_that_was_stopped_comes_first_when_the_run_goes_on(unbroken, judged, voxloom, tmp_path, how):
    run = tmp_path / "run"
    process = start(unbroken / "recipe.yaml", run, *JUDGED, *SLOW)
    assert wait_for_step(run, 5, process), process.stderr.read()
    if how == signal.SIGKILL:
        process.send_signal(signal.SIGUSR1)
        wait_for_checkpoint(run, process)
    process.send_signal(how)
    assert process.wait(timeout=20) == {signal.SIGTERM: 143, signal.SIGKILL: -9}[how]
    facts = metadata(checkpoint(run))
    assert facts["step"] == "5" and facts["epoch_open"] == "true" and not rows(run, "val")
    voxloom("train", unbroken / "recipe.yaml", "--run", run, *JUDGED, "--force")
    assert record(run)["processes"][-1]["first_step"] == 6
    for name in ("last", "best"):
        assert_same_weights(checkpoint(run, name), checkpoint(judged, name))
    for told in ("step", "epoch_open", "schedule", "early_stop", "best_score", "optimizer.count"):
        assert metadata(checkpoint(run))[told] == metadata(checkpoint(judged))[told], told
    told = ("step", "epoch", "loss", "lr", "grad_norm", "dice", "iou")
    for split in ("train", "val"):
        assert [[row[name] for name in told] for row in rows(run, split)] == [
            [row[name] for name in told] for row in rows(judged, split)]


def test_a_validation_whose_end_was_not_saved_is_told_once(unbroken, judged, voxloom, tmp_path):
    """As if the process had been killed between two saves: one in the validation, and the one that follows it."""
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    run, kept = tmp_path / "run", tmp_path / "kept"
    process = start(unbroken / "recipe.yaml", run, *JUDGED, *SLOW)
    assert wait_for_step(run, 5, process), process.stderr.read()
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=20) == 143
    shutil.copytree(run / "checkpoints", kept)
    for _ in range(2):
        shutil.rmtree(run / "checkpoints")
        shutil.copytree(kept, run / "checkpoints")
        voxloom("train", unbroken / "recipe.yaml", "--run", run, *JUDGED, "--force")
    told = [accumulator.EventAccumulator(str(folder), size_guidance={"scalars": 0, "images": 0}).Reload()
            for folder in (run, judged)]
    for tag in ("train/loss", "train/epoch", "val/dice"):
        assert [event.step for event in told[0].Scalars(tag)] == [event.step for event in told[1].Scalars(tag)], tag
    for tag in told[1].Tags()["images"]:
        assert [event.step for event in told[0].Images(tag)] == [event.step for event in told[1].Images(tag)], tag
    assert [row["step"] for row in rows(run, "val")] == [row["step"] for row in rows(judged, "val")] == ["5", "10"]


def test_a_stop_in_the_last_validation_leaves_a_run_that_is_not_finished(unbroken, voxloom, tmp_path):
    run, options = tmp_path / "run", [*JUDGED, "training.max_epochs=1", "training.iterations_per_epoch=2"]
    process = start(unbroken / "recipe.yaml", run, *options, *SLOW)
    assert wait_for_step(run, 2, process), process.stderr.read()
    voxloom("stop", run)
    assert process.wait(timeout=20) == 0 and record(run)["state"] == "stopped"
    said = voxloom("train", unbroken / "recipe.yaml", "--run", run, *options, "--force").stdout
    assert "Finished at step 2; best dice" in said and [row["step"] for row in rows(run, "val")] == ["2"]


def test_a_run_that_is_stopped_before_its_first_step_keeps_what_it_went_on_from(unbroken, tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    options = [*JUDGED, "training.iterations_per_epoch=2", *SLOW]
    process = start(unbroken / "recipe.yaml", first, *options)
    assert wait_for_step(first, 2, process), process.stderr.read()
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=20) == 143
    process = start(unbroken / "recipe.yaml", second, *options, "--resume", checkpoint(first))
    status = second / "status.json"
    validates = lambda: status.exists() and json.loads(status.read_text())["phase"] == "validation"
    assert wait_until(validates, process), process.stderr.read()
    process.send_signal(signal.SIGTERM)
    said = end_of(process, 20)[0]
    assert process.returncode == 143 and "and without --resume goes on" in said
    facts = metadata(checkpoint(second))
    assert facts["step"] == "2" and facts["epoch_open"] == "true"
    assert_same_weights(checkpoint(second), checkpoint(first))


def stopped_while_the_data_load(unbroken, folder, *options):
    run = folder / "run"
    process = start(unbroken / "recipe.yaml", run, "data.preprocess=[{name: median, size: 15}]", "system.num_cpus=1",
                    f"data.cache_dir={folder}/cache", *options)
    assert wait_until(lambda: (run / "run.json").exists(), process), process.stderr.read()
    process.send_signal(signal.SIGTERM)
    said, error = end_of(process)
    assert process.returncode == 143, error
    assert record(run)["state"] == "stopped" and not checkpoint(run).exists()
    return said


def test_a_stop_while_the_data_load_ends_a_run_soon(unbroken, tmp_path):
    assert "Stopped at step 0" in stopped_while_the_data_load(unbroken, tmp_path)


def test_a_stop_while_the_data_load_leaves_the_file_to_go_on_from(unbroken, tmp_path):
    said = stopped_while_the_data_load(unbroken, tmp_path, "training.max_epochs=19", "--force", "--resume",
                                       checkpoint(unbroken / "run"))
    assert "Stopped at step 100" in said
    assert f"the same command with --run {tmp_path / 'run'} and its --resume goes on" in said


def test_a_stop_while_the_data_load_leaves_a_finished_run_as_it_was(unbroken, voxloom, tmp_path):
    run = tmp_path / "run"
    voxloom("train", unbroken / "recipe.yaml", "--run", run, "training.max_epochs=1", "training.iterations_per_epoch=2")
    before = (run / "report.html").read_bytes(), (run / "config.yaml").read_bytes()
    process = start(unbroken / "recipe.yaml", run, "data.preprocess=[{name: median, size: 15}]", "system.num_cpus=1",
                    f"data.cache_dir={tmp_path}/cache", "--resume", "never")
    assert wait_until(lambda: record(run)["state"] == "running", process), process.stderr.read()
    process.send_signal(signal.SIGTERM)
    said, error = end_of(process)
    assert process.returncode == 143 and "and its --resume goes on" in said, error
    assert record(run)["state"] == "finished" and checkpoint(run).exists()
    assert record(run)["processes"][-1]["how"] == "stopped: SIGTERM"
    assert ((run / "report.html").read_bytes(), (run / "config.yaml").read_bytes()) == before


def test_torchs_threads_are_those_of_the_checkpoint_where_the_cpus_allow_it(unbroken, voxloom, tmp_path):
    run = tmp_path / "run"
    options = ["train", unbroken / "recipe.yaml", "--run", run, "training.iterations_per_epoch=2", "--force"]
    for epochs, cpus, threads in ((1, 4, 3), (2, 6, 3), (3, 2, 1)):
        said = voxloom(*options, f"training.max_epochs={epochs}", f"system.num_cpus={cpus}").stderr
        assert metadata(checkpoint(run))["compute_threads"] == str(threads)
        assert ("compute threads were 3 and are 1" in said) == (threads == 1)


def test_the_best_of_a_killed_process_is_named_when_the_run_is_looked_at_again(unbroken, voxloom, tmp_path):
    options = ["train", unbroken / "recipe.yaml", "--run", tmp_path / "run", *LONG, "training.max_epochs=1",
               "training.iterations_per_epoch=2"]
    voxloom(*options)
    checkpoint(tmp_path / "run", "best").unlink()
    voxloom(*options)
    assert_same_weights(checkpoint(tmp_path / "run", "best"), checkpoint(tmp_path / "run"))


def test_never_starts_anew_and_keeps_what_was_there(unbroken, voxloom, tmp_path):
    options = [*LONG, "training.max_epochs=1", "training.iterations_per_epoch=3"]
    voxloom("train", unbroken / "recipe.yaml", "--run", tmp_path / "run", *options)
    voxloom("train", unbroken / "recipe.yaml", "--run", tmp_path / "run", *options, "--resume", "never")
    assert record(tmp_path / "run")["processes"][-1]["first_step"] == 1
    assert (tmp_path / "run" / "checkpoints-before-1" / "last.safetensors").exists()
    assert [row["step"] for row in rows(tmp_path / "run", "val")] == ["3"]


def test_threads_stay_within_the_cpus_of_the_recipe(unbroken, tmp_path):
    run = tmp_path / "run"
    process = start(unbroken / "recipe.yaml", run, "system.num_cpus=2", "data.num_workers=8", "training.max_epochs=3",
                    "training.iterations_per_epoch=50", "monitor.log_every=1")
    wait_for_steps(run, 1, process)
    most = samples = 0
    while process.poll() is None:
        most, samples = max(most, runnable_threads(process)[0]), samples + 1
    assert process.returncode == 0, process.stderr.read()
    # The thread that writes checkpoints and the one that keeps the status run for moments.
    assert samples > 20 and most <= 2 + 1


def test_a_term_with_a_delay_changes_no_bit_over_threads_and_a_stop_in_between(tmp_path, draw):
    """Begun at steps 0, 5, 10, 15 and applied at 3, 8, 13 (counted from 0): each epoch of six ends in between."""
    terms = """
loss:
  terms: [{name: dice}, {name: topology, every: 5, delay: 3, weight: 0.1}]
"""
    options = ["training.iterations_per_epoch=6", "training.save_every=1", "monitor.log_every=1", "training.accumulate=2",
               "system.compute_threads=1"]
    recipe = write_training(tmp_path, draw, terms)
    for name, more in (("whole", []), ("again", ["data.num_workers=3"]),
                       ("resumed", ["--resume", tmp_path / f"whole/checkpoints/epoch-000{draw.randrange(1, 3)}.safetensors"])):
        finish(recipe, tmp_path / name, *options, *more)
    values = {name: {row["step"]: (row["loss"], row["loss.topology"]) for row in rows(tmp_path / name)}
              for name in ("whole", "again", "resumed")}
    assert [step for step, (_, late) in values["whole"].items() if late] == ["4", "9", "14"]
    assert all(float(row["topology_wait_ms"]) >= 0 for row in rows(tmp_path / "whole") if row["loss.topology"])
    assert all(0 < float(row["dice_ms"]) < float(row["step_ms"]) for row in rows(tmp_path / "whole"))
    assert all(bool(row["topology_ms"]) == bool(row["loss.topology"]) for row in rows(tmp_path / "whole"))
    assert values["again"] == values["whole"] and values["resumed"].items() <= values["whole"].items()
    for name in ("again", "resumed"):
        assert_same_weights(checkpoint(tmp_path / name), checkpoint(tmp_path / "whole"))
    assert any(name.startswith("late.topology.15.1.") for name in tensors(checkpoint(tmp_path / "whole")))
