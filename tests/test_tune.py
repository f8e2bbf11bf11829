"""voxloom tune: settings found by trials in child processes."""
import json

import pytest

from plants import tiny_network, write_cases, write_recipe

SLOW_DISK = {"VOXLOOM_TEST_READ_MBPS": "1.5"}


@pytest.fixture
def waiting(draw, tmp_path):
    """Bound by its data: batch 1, one worker, one batch ahead, every patch from a slow disk, next to no network."""
    write_cases(tmp_path, draw, 6, (48, 64, 64))
    return write_recipe(tmp_path, model=tiny_network(tmp_path), data={
        "batch_size": 1, "num_workers": 1, "prefetch_factor": 1, "placement": "disk", "cache_gb": 0.001})


def test_a_recipe_that_waits_for_its_data_becomes_faster(voxloom, waiting, tmp_path):
    output, scratch = tmp_path / "tuned.yaml", tmp_path / "scratch"
    scratch.mkdir()
    result = json.loads(voxloom("tune", waiting, "--steps", 12, "--minutes", 1, "--output", output, "--json", "--run",
                                tmp_path / "search", env={**SLOW_DISK, "TMPDIR": str(scratch)}).stdout)
    assert not list(scratch.iterdir()), "trials and turns that were ended leave nothing"
    trials = result["trials"]
    assert trials[0]["verdict"] == "start" and trials[0]["changes"] == []
    kept = [trial for trial in trials if trial["verdict"] == "kept"]
    assert kept and all(trial["gain"] > 1 and trial["loss_difference"] == 0 for trial in kept), trials
    assert all(trial["predicted_step_ms"] for trial in trials[1:])
    assert all(trial["step_ms"] > 0 and trial["memory_gb"] > 0 for trial in trials)
    assert result["chosen"] == kept[-1]["changes"] and result["speedup"] > 1.5, result["compared"]
    assert result["compared"]["interval"][1] < 1
    lines = output.read_text().splitlines()
    for change in result["chosen"]:
        key, value = change.split("=", 1)
        line = next(line for line in lines if line.strip().startswith(key.split(".")[1] + ":"))
        assert line.split("#")[0].split(":", 1)[1].strip() == value and "samples/s" in line.split("#")[1]
    assert voxloom("train", output, "--dry-run").returncode == 0
    assert not (tmp_path / "runs").exists()
    report = (tmp_path / "search" / "report.html").read_text()
    assert report.count('class="trial"') == len(trials), "speed against memory of each"
    assert json.loads((tmp_path / "search" / "tune.json").read_text()) == result


def test_a_recipe_that_cannot_run_is_refused(voxloom, waiting):
    refused = voxloom("tune", waiting, "model.file=absent.pt", "--json", check=False)
    assert refused.returncode == 1 and "absent.pt" in refused.stderr and not refused.stdout
    wrong = voxloom("tune", waiting, "--allow", "everything", check=False)
    assert wrong.returncode == 2


def test_a_table_chooses_nothing_to_write(voxloom, waiting, tmp_path):
    refused = voxloom("tune", waiting, "--ablate", "--output", tmp_path / "tuned.yaml", check=False)
    assert refused.returncode == 2 and "--output" in refused.stderr and not refused.stdout
    assert not (tmp_path / "tuned.yaml").exists()
