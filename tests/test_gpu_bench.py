"""The pieces of bench/gpu_side_by_side that need no GPU: workloads that load, and blocks in turns."""
import json
import pathlib

import pytest

FOLDER = pathlib.Path(__file__).parent.parent / "bench" / "workloads"
OUR_OWN = {"dose_96_b2"}  # a step that was measured; no peer's network
PARAMETERS = {"nnunet_128_b2": 31195594, "mlperf_128_b7": 31196399, "vesuvius_b2": 5602723, "kbp64_b2": 116975361,
              "basic_112_b4": 22625281, "monaiunet_112_b4": 19219984}  # of the peers' networks


@pytest.mark.parametrize("workload", PARAMETERS)
def test_workload_is_the_peers_network(voxloom, workload):
    shown = voxloom("train", FOLDER / f"{workload}.yaml", "data.root=.", "--dry-run").stdout
    trained = next(line for line in shown.splitlines() if "trained parameters" in line)
    assert int(trained.split()[1]) == PARAMETERS[workload]


def test_all_workloads_have_a_peer():
    assert {path.stem for path in FOLDER.glob("*.yaml")} == set(PARAMETERS) | OUR_OWN


def test_blocks_in_turns(voxloom):
    done = voxloom("bench", "step", "model.filters=4,8", "data.patch_size=8,8,8", "--turns", "--steps", 2,
                   input="\n\n\n")
    ready, *blocks = [json.loads(line) for line in done.stdout.splitlines()]
    assert ready == {"ready": True}
    assert len(blocks) == 3
    for block in blocks:
        assert block["median_ms"] > 0 and block["first_step_s"] > 0 and block["estimated_gb"] > 0
        assert sum(block["start_s"].values()) >= block["first_step_s"]
    assert blocks[0]["loss"] != blocks[1]["loss"]  # steps were done in between


def test_a_step_has_the_channels_that_the_recipe_states(voxloom):
    small = ["model.filters=4,8", "data.patch_size=8,8,8", "--steps", 1, "--warm-up", 1, "--json"]
    [row] = json.loads(voxloom("bench", "step", "model.in_channels=2", *small).stdout)
    assert row["median_ms"] > 0
    [row] = json.loads(voxloom("bench", "step", "--channels", 3, *small).stdout)
    assert row["median_ms"] > 0


# Of the first step with known choices of kernels, and of later ones, on an H200 (2026-11-15), as `bench step` gives them.
PEAKS_GB = {"nnunet_128_b2": (3.037, 3.060), "mlperf_128_b7": (9.580, 9.601), "vesuvius_b2": (1.830, 1.841),
            "kbp64_b2": (2.755, 2.780), "basic_112_b4": (5.282, 5.315), "monaiunet_112_b4": (1.084, 1.068)}


@pytest.mark.parametrize("workload", PEAKS_GB)
def test_memory_is_estimated_to_a_tenth(voxloom, workload):
    found = json.loads(voxloom("profile", FOLDER / f"{workload}.yaml", "--on", "h200", "data.root=.", "--json").stdout)
    for peak in PEAKS_GB[workload]:
        assert found["memory_gb"] == pytest.approx(peak, rel=0.1)
