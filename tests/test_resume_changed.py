"""A run that goes on with other settings takes over what still fits; one that is refused is left as it was."""
import json
import shutil

import numpy as np
import pytest
from training import checkpoint, metadata, record, rows, write_training

SHORT = ["training.max_epochs=1", "training.iterations_per_epoch=3", "training.warmup_steps=0", "monitor.log_every=1",
         "system.compute_threads=1"]


@pytest.fixture
def finished(voxloom, draw, tmp_path):
    """A recipe, and a function that trains it: the run, and what was said."""
    recipe = write_training(tmp_path, draw)

    def train(run, *options, **checks):
        return voxloom("train", recipe, "--run", tmp_path / run, *SHORT, *options, **checks)

    train("run")
    return train


def files_of(run):
    return {path.relative_to(run): path.read_bytes() for path in run.rglob("*")
            if path.is_file() and path.name not in ("log.txt", "run.json", "status.json")}


@pytest.mark.parametrize("before, after", [("16-mixed", "32"), ("32", "16-mixed")])
def test_the_scale_of_the_loss_is_that_of_the_precision(finished, tmp_path, before, after):
    plain = ["training.optimizer=sgd", "training.schedule=constant", "training.clip_norm=0"]
    finished("first", *plain, f"training.precision={before}")
    shutil.copytree(tmp_path / "first", tmp_path / "other")
    for run, precision in (("first", before), ("other", after)):
        finished(run, *plain, f"training.precision={precision}", "training.max_epochs=2", "--force")
    same, other = (float(rows(tmp_path / run)[3]["grad_norm"]) for run in ("first", "other"))
    assert other == pytest.approx(same, rel=0.05)
    assert (float(metadata(checkpoint(tmp_path / "other"))["optimizer.loss_scale"]) == 1) == (after == "32")


@pytest.mark.parametrize("options", [["data.root=/nowhere", "--resume", "never"], ["data.root=/nowhere", "training.max_epochs=2", "--force"],
                                     ["model.filters=4,16", "training.max_epochs=2", "--force"]], ids=str)
def test_a_start_that_is_refused_leaves_the_run_as_it_was(finished, voxloom, tmp_path, options):
    before = files_of(tmp_path / "run")
    assert finished("run", *options, check=False).returncode == 1
    assert files_of(tmp_path / "run") == before and record(tmp_path / "run")["state"] == "finished"


@pytest.mark.parametrize("before, after", [
    ([], ["validation.metric=loss"]),
    (["validation.metric=loss"], ["validation.metric=loss", "loss.terms=[{name: dice, weight: 100}]"]),
    (["validation.metric=loss"], ["validation.metric=loss", "validation.patches=6"])], ids=str)
def test_another_measure_has_a_best_of_its_own(finished, tmp_path, before, after):
    finished("run", *before, "--resume", "never")
    run, former = tmp_path / "run", metadata(checkpoint(tmp_path / "run"))
    said = finished("run", *after, "training.max_epochs=4", "--force")
    losses = {row["step"]: float(row["loss"]) for row in rows(run, "val") if int(row["step"]) > 3}
    best = metadata(checkpoint(run, "best"))
    assert best["step"] == min(losses, key=losses.get)
    assert float(best["best_score"]) == pytest.approx(min(losses.values()))
    assert "the next validation counts as the best" in said.stderr
    assert metadata(run / "checkpoints-before-2" / "best.safetensors")["best_score"] == former["best_score"]


def test_other_labels_have_a_best_of_their_own(finished, tmp_path):
    shutil.copytree(tmp_path / "labels", tmp_path / "other")
    said = finished("run", "data.label=other/{id}.npy", "training.max_epochs=2", "training.lr=1e-30", "--force")
    assert "the next validation counts as the best" in said.stderr
    assert metadata(checkpoint(tmp_path / "run", "best"))["step"] == "6"
    assert (tmp_path / "run" / "checkpoints-before-1" / "best.safetensors").exists()


@pytest.fixture
def of_a_table(finished, tmp_path):
    """A run in the middle, of cases that a table splits; and a function that trains it on."""
    table = tmp_path / "cases.csv"

    def train(splits, *options, **checks):
        table.write_text("id,split\n" + "".join(f"case_00{i},{split}\n" for i, split in enumerate(splits)))
        return finished("split", f"data.csv={table}", "data.split=column", "data.train=", "data.validation=",
                        "training.max_epochs=2", "training.save_every=1", "training.lr=1e-30", *options, **checks)

    train(["train", "train", "validation"])  # nothing is learnt: the first epoch is the best
    for name in ("last", "previous", "epoch-0002"):
        checkpoint(tmp_path / "split", name).unlink()
    return train


def test_other_cases_than_before_are_named_and_refused(of_a_table, tmp_path):
    before = files_of(tmp_path / "split")
    before.pop(next(path for path in before if path.name == "metrics.csv"), None)
    refused = of_a_table(["train", "validation", "train"], check=False)
    assert refused.returncode == 1 and "trained on now: case_002; trained on no longer: case_001; " in refused.stderr
    assert "validated with now: case_001; validated with no longer: case_002" in refused.stderr
    assert "add --force" in refused.stderr and files_of(tmp_path / "split").items() >= before.items()
    refused = of_a_table(["train", "test", "validation"], check=False)
    assert refused.returncode == 1 and "(trained on no longer: case_001)" in refused.stderr
    assert "--force" not in of_a_table(["train", "train", "validation"]).stderr  # they are the same again


def test_scores_of_other_cases_say_nothing_of_the_next(of_a_table, tmp_path):
    said = of_a_table(["train", "validation", "train"], "--force").stderr
    assert "trained on now: case_002" in said and "the next validation counts as the best" in said
    assert metadata(checkpoint(tmp_path / "split", "best"))["step"] == "6"
    assert (tmp_path / "split" / "checkpoints-before-1" / "best.safetensors").exists()


def test_a_prediction_tells_which_of_its_cases_were_learnt_whatever_the_split_is_now(of_a_table, voxloom, tmp_path):
    predict = ["predict", checkpoint(tmp_path / "split", "epoch-0001"), "--split", "validation", "--output", tmp_path / "out"]
    assert "was trained on" not in voxloom(*predict).stderr
    table = tmp_path / "cases.csv"
    table.write_text("id,split\ncase_000,train\ncase_001,validation\ncase_002,validation\n")
    assert "was trained on 1 of the 2 cases of this validation split" in voxloom(*predict).stderr


def test_another_schedule_begins_without_a_memory(finished, tmp_path):
    """No score rises where nothing is learnt, which only the schedule `plateau` minds."""
    long = ["training.iterations_per_epoch=1", "training.plateau_patience=1", "training.lr=1e-20", "training.min_lr=0"]
    finished("still", *long, "training.schedule=constant", "training.max_epochs=8")
    finished("still", *long, "training.schedule=plateau", "training.lr=0.25", "training.max_epochs=9", "--force")
    assert float(rows(tmp_path / "still")[-1]["lr"]) == 0.25


def test_what_a_run_began_from_may_be_gone_when_it_goes_on(finished, voxloom, tmp_path):
    weights = tmp_path / "begin.safetensors"
    voxloom("weights", "export", checkpoint(tmp_path / "run"), "--output", weights)
    finished("second", f"model.weights={weights}")
    weights.unlink()
    finished("second", f"model.weights={weights}", "training.max_epochs=2", "--force")
    assert rows(tmp_path / "second")[-1]["step"] == "6"
    assert finished("third", f"model.weights={weights}", check=False).returncode == 1


def test_a_finished_run_of_another_folder_finishes_none(finished, tmp_path):
    finished("other", "training.max_epochs=2")
    last = checkpoint(tmp_path / "other")
    refused = finished("run", "training.max_epochs=2", "--resume", last, check=False)
    assert refused.returncode == 1 and f"{last} is from is finished (2 epochs" in refused.stderr
    assert record(tmp_path / "run")["processes"][-1]["how"].startswith("refused")


def test_a_file_of_another_run_leaves_nothing_of_what_was_in_the_folder(finished, tmp_path):
    options = ["training.iterations_per_epoch=2", "training.max_epochs=2", "training.save_every=1"]
    for name, seed in (("one", 1), ("other", 2)):
        finished(name, *options, f"training.seed={seed}")
    before = (tmp_path / "other" / "metrics.csv").read_bytes()
    said = finished("other", *options, "training.seed=1", "--force", "--resume", checkpoint(tmp_path / "one", "epoch-0001"))
    assert f"are now in {tmp_path}/other/checkpoints-before-1" in said.stderr
    losses = {name: {row["step"]: row["loss"] for row in rows(tmp_path / name)} for name in ("one", "other")}
    assert losses["other"] == {step: losses["one"][step] for step in ("3", "4")}
    assert not checkpoint(tmp_path / "other", "epoch-0001").exists()
    aside = tmp_path / "other" / "checkpoints-before-1"
    assert (aside / "epoch-0001.safetensors").exists() and (aside / "metrics.csv").read_bytes() == before


@pytest.mark.parametrize("longer", [["training.iterations_per_epoch=5"],
                                    ["training.iterations_per_epoch=auto", "data.patches_per_case=5"],
                                    ["training.iterations_per_epoch=1s"]], ids=str)
def test_longer_epochs_make_a_finished_run_go_on(finished, tmp_path, longer):
    finished("run", *longer, "--force")
    steps = int(rows(tmp_path / "run")[-1]["step"])
    assert steps > 3 if longer[0].endswith("s") else steps == 5
    assert metadata(checkpoint(tmp_path / "run"))["steps_per_epoch"] == str(steps)


def test_what_a_run_that_stopped_early_says_makes_it_go_on(finished, tmp_path):
    early = ["training.iterations_per_epoch=1", "training.lr=1e-30", "training.max_epochs=6"]
    finished("still", *early, "training.early_stop=1")
    said = finished("still", *early, "training.early_stop=1", "training.max_epochs=9", "--force").stdout
    assert "(2 epochs, step 2). To go on, raise training.early_stop (now 1, 0 is off) and add --force." in said
    finished("still", *early, "training.early_stop=5", "--force")
    said = finished("still", *early, "training.early_stop=4", "--force").stdout
    assert "raise training.early_stop (now 4, 0 is off) and training.max_epochs (now 6) and add --force" in said


def test_a_refusal_names_what_helps(finished, voxloom, tmp_path):
    last = checkpoint(tmp_path / "run")
    refused = finished("fine", "training.lr=0.02", "--resume", last, check=False)
    assert refused.returncode == 1 and f"begin another --run with model.weights={last} instead of --resume" in refused.stderr
    finished("fine", "training.lr=0.02", f"model.weights={last}")
    refused = finished("run", "training.max_epochs=2", "training.optimizer=sgd", "--force", check=False)
    assert refused.returncode == 1 and "name another --run, and its weights as model.weights" in refused.stderr
    voxloom("weights", "export", last, "--output", tmp_path / "alone.safetensors")
    refused = finished("alone", "--resume", tmp_path / "alone.safetensors", check=False)
    assert refused.returncode == 1 and "a run starts from weights alone with model.weights" in refused.stderr


def test_a_link_to_a_file_of_the_run_is_that_file(finished, tmp_path):
    link = tmp_path / "link.safetensors"
    link.symlink_to(checkpoint(tmp_path / "run", "best"))
    finished("run", "training.max_epochs=2", "--force", "--resume", link)
    assert [row["step"] for row in rows(tmp_path / "run")] == ["1", "2", "3", "4", "5", "6"]
    assert not (tmp_path / "run" / "checkpoints-before-1").exists()


def test_checkpoints_that_are_gone_are_missed(finished, tmp_path):
    run, still = tmp_path / "run", ["training.lr=1e-30", "training.min_lr=0", "--force"]
    finished("run", "training.max_epochs=2", *still)  # the first epoch stays the best, and is `previous`
    checkpoint(run, "best").unlink()
    finished("run", "training.max_epochs=3", *still)
    assert metadata(checkpoint(run, "best"))["step"] == "3"
    checkpoint(run, "best").unlink()
    said = finished("run", "training.max_epochs=4", *still).stderr
    assert "no checkpoint of the best score so far, which was at step 3" in said
    assert metadata(checkpoint(run, "best"))["step"] == "12"
    curves = (run / "metrics.csv").read_bytes()
    shutil.rmtree(run / "checkpoints")
    said = finished("run", "training.max_epochs=4", *still).stderr
    assert "checkpoints are gone, of which the last was last.safetensors at step 12: it starts anew" in said
    assert (run / "checkpoints-before-1" / "metrics.csv").read_bytes() == curves
    curves = (run / "metrics.csv").read_bytes()
    shutil.rmtree(run / "checkpoints")
    finished("run", "--resume", "never")
    assert (run / "checkpoints-before-2" / "metrics.csv").read_bytes() == curves


def test_a_term_with_a_delay_may_lose_the_outputs_that_it_looked_at(finished, tmp_path):
    late = ["loss.terms=[{name: dice}, {name: topology, every: 6, delay: 5}]", "model.filters=4,8,8",
            "training.iterations_per_epoch=4"]
    finished("deep", *late, "model.deep_supervision=true")
    finished("deep", *late, "model.deep_supervision=false", "training.max_epochs=2", "--force")
    assert any(row["loss.topology"] for row in rows(tmp_path / "deep"))


def test_a_row_has_the_rare_terms_of_before_a_stop(finished, tmp_path):
    rare = ["loss.terms=[{name: dice}, {name: bce, every: 3}]", "training.iterations_per_epoch=4",
            "monitor.log_every=5", "training.schedule=constant", "validation.every=0"]  # bce is due in the steps 1, 4, 7
    finished("whole", *rare, "training.max_epochs=2")
    finished("parts", *rare)
    finished("parts", *rare, "training.max_epochs=2", "--force")
    whole, parts = (rows(tmp_path / name)[0] for name in ("whole", "parts"))
    assert whole["step"] == "5" and whole["loss.bce"] == parts["loss.bce"] != ""


def test_curves_that_cannot_be_read_are_the_reason_and_change_nothing(finished, tmp_path):
    run = tmp_path / "run"
    whole = (run / "metrics.csv").read_text()
    (run / "metrics.csv").write_text(whole.replace(whole.splitlines()[2].split(",")[0] + ",", "what,", 1))
    refused = finished("run", "training.max_epochs=2", "--force", check=False)
    assert refused.returncode == 1 and "metrics.csv:" in refused.stderr
    assert record(run)["state"] == "finished"
    finished("run", "--resume", "never")
    assert (run / "checkpoints-before-1" / "metrics.csv").exists() and len(rows(run)) == 3


def test_bad_steps_are_passed_when_the_run_goes_on(voxloom, draw, tmp_path):
    """Whatever was saved before: steps that changed nothing are done, and are told once."""
    recipe, run = write_training(tmp_path, draw), tmp_path / "run"
    huge = np.load(tmp_path / "images" / "case_001.npy").astype(np.float32) * np.float32(1e36)
    np.save(tmp_path / "images" / "case_001.npy", huge)
    options = ["train", recipe, "--run", run, "data.preprocess=[]", "training.max_bad_steps=1", "training.max_epochs=40",
               "training.iterations_per_epoch=2", "validation.every=0"]
    reached = []
    for _ in range(3):
        result = voxloom(*options, check=False)
        assert result.returncode == 1 and "a step was not finite" in result.stderr
        reached.append(int(metadata(checkpoint(run))["step"]))
        assert "previous.safetensors" in result.stderr or len(reached) == 1
    assert reached == sorted(set(reached))
    told = (run / "bad_steps.jsonl").read_text().splitlines()
    assert len(told) == len(set(told)) == 3


def test_steps_under_way_when_a_run_ends_for_bad_ones_are_told_too(voxloom, draw, tmp_path):
    recipe, run = write_training(tmp_path, draw), tmp_path / "run"
    for case in ("case_000", "case_001"):
        np.save(tmp_path / "images" / f"{case}.npy", np.full((24, 26, 28), 3e38, np.float32))
    ended = voxloom("train", recipe, "--run", run, "data.preprocess=[]", "training.max_bad_steps=3", "monitor.log_every=5",
                    "training.max_epochs=4", "validation.every=0", check=False)
    assert ended.returncode == 1 and "steps in a row were not finite" in ended.stderr
    reached = int(metadata(checkpoint(run))["step"])
    assert reached >= 3
    told = [json.loads(line)["step"] for line in (run / "bad_steps.jsonl").read_text().splitlines()]
    assert told == list(range(1, reached + 1))
