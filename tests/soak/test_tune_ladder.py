"""`voxloom tune --plan`: one setting after the other, and a trial that runs out of memory."""
import json
import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from plants import tiny_network, write_cases, write_recipe  # noqa: E402


def test_the_ladder_counts_a_trial_beyond_the_memory_as_a_data_point(voxloom, draw, tmp_path):
    write_cases(tmp_path, draw, 2, (80, 80, 80))
    recipe = write_recipe(tmp_path, model=tiny_network(tmp_path), loss={"terms": [{"name": "bce"}]},
                          data={"patch_size": [80, 80, 80], "batch_size": 8})
    used = json.loads(voxloom("profile", recipe, "--steps", 3, "--json").stdout)["memory"]["host_peak_gb"] * 1e9
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    options = ("--plan", "conservative", "--steps", 2, "--memory-target", 1.2 * used / machine)
    trials = json.loads(voxloom("tune", recipe, *options, "--json").stdout)["trials"]
    assert [trial["name"].split("=")[0] for trial in trials] == [
        "as it is", "data.batch_size", "data.num_workers", "data.prefetch_factor"]
    assert trials[1]["verdict"] == "out of memory" and trials[1]["changes"] == ["data.batch_size=16"], trials[1]
    assert all(trial["step_ms"] > 0 for trial in trials if trial is not trials[1])
    assert not any("data.batch_size=16" in trial["changes"] for trial in trials[2:])
