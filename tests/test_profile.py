"""voxloom profile: what it measures against what can be known otherwise, and causes that were planted."""
import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest

from conftest import PROGRAM, REPOSITORY
from plants import profile_plant, write_cases, write_recipe
from processes import wait_until

NAMES = {"storage", "decode", "preprocess", "cache", "augment", "threads", "oversubscription", "transfer",
         "gpu_bandwidth", "gpu_compute", "loss", "sync", "logging", "checkpoint"}
# Slow because something waits or computes by far the most, whatever else the machine does; tests/soak has all of them.
QUICK_PLANTS = ["slow disk", "cache that misses", "slow loss"]


@pytest.fixture
def recipe(draw, tmp_path):
    write_cases(tmp_path, draw, 3, (32, 36, 40))
    return write_recipe(tmp_path, augmentation={"noise": {"enabled": True, "prob": 1.0}, "flip": {"enabled": True}})


def profile(voxloom, *arguments, **options):
    return json.loads(voxloom("profile", *arguments, "--json", **options).stdout)


def test_the_document_its_trace_and_nothing_left_behind(voxloom, recipe, tmp_path):
    here = tmp_path / "here"
    here.mkdir()
    result = profile(voxloom, recipe, "--steps", 8, "--trace", here / "trace.json", cwd=here)
    assert [path.name for path in here.iterdir()] == ["trace.json"]
    assert result["gpu_busy"] is None and result["steps"] == 8
    assert result["bottleneck"]["name"] in NAMES and result["bottleneck"]["evidence"]
    assert sum(result["step_stages"].values()) == pytest.approx(result["step_ms"])
    assert {"forward", "backward", "optimizer", "loss.dice", "loss.bce", "gather", "noise"} <= result["stages"].keys()
    assert all(value >= 0 for value in result["stages"].values())
    assert result["samples_per_s"] == pytest.approx(2000 / result["step_ms"])
    for suggestion in result["suggestions"]:
        assert 0 < suggestion["predicted_step_ms"] < result["step_ms"] and "=" in suggestion["change"]
    events = json.loads((here / "trace.json").read_text())["traceEvents"]
    measured = [event for event in events if event.get("cat") == "voxloom"]
    steps = [event for event in measured if event["name"] == "step"]
    forwards = [event for event in measured if event["name"] == "forward"]
    assert len(steps) == len(forwards) == 8
    for step, forward in zip(steps, forwards):
        assert step["ts"] <= forward["ts"] and forward["ts"] + forward["dur"] <= step["ts"] + step["dur"]
    text = voxloom("profile", recipe, "--steps", 3, "--run", tmp_path / "measured").stdout
    assert "bottleneck: " in text and "backward" in text
    report = (tmp_path / "measured" / "report.html").read_text()
    bars = report[report.index('class="waterfall"'):]
    assert bars.index(">forward<") < bars.index(">backward<") < bars.index(">optimizer<"), "the order of a step"


def test_what_says_which_data_is_no_change_to_be_compared(voxloom, recipe, tmp_path):
    text = recipe.read_text()
    recipe.write_text(text.replace(f'"root": "{tmp_path}"', '"root": "/nowhere"'))
    assert recipe.read_text() != text
    compared = profile(voxloom, recipe, f"data.root={tmp_path}", "data.batch_size=1", "--steps", 5)
    assert compared["compared"]["ratio"] > 0
    assert "compared" not in profile(voxloom, recipe, f"data.root={tmp_path}", "--steps", 5)


def test_a_comparison_that_is_interrupted_leaves_nothing_behind(recipe, tmp_path):
    (tmp_path / "scratch").mkdir()
    process = subprocess.Popen([PROGRAM, "profile", recipe, "data.batch_size=1", "--steps", "3"], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, env={**os.environ, "TMPDIR": str(tmp_path / "scratch")})
    compares = lambda: any(path.name.startswith("voxloom-child") for path in (tmp_path / "scratch").iterdir())
    assert wait_until(compares, process)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 143 and not list((tmp_path / "scratch").iterdir())


def test_the_loader_alone_and_the_step_alone(voxloom, recipe):
    loader = profile(voxloom, recipe, "--data-only", "--steps", 20)
    assert "forward" not in loader["stages"] and loader["stages"]["gather"] > 0
    assert loader["data_wait_ms"] > 0.5 * loader["step_ms"]
    step = profile(voxloom, recipe, "--no-data", "--steps", 10)
    assert step["data_wait_ms"] < 0.05 * step["step_ms"] and "gather" not in step["stages"]


def test_a_slow_disk_takes_as_long_as_its_bytes(voxloom, draw, tmp_path):
    write_cases(tmp_path, draw, 12, (32, 40, 48))
    recipe = write_recipe(tmp_path, data={"placement": "disk", "cache_gb": 0.001})
    profile(voxloom, recipe, "--data-only", "--steps", 2)
    megabytes_per_s = draw.uniform(0.5, 1)
    result = profile(voxloom, recipe, "--steps", 12, env={"VOXLOOM_TEST_READ_MBPS": str(megabytes_per_s)})
    expected = result["cache"]["bytes_read"] / 12 / megabytes_per_s / 1e3
    assert result["cache"]["misses"] > 0
    assert 0.95 * expected < result["stages"]["storage"] < 2 * expected


def test_planted_causes_are_named(voxloom, draw, tmp_path):
    for number, name in enumerate(QUICK_PLANTS):
        folder = tmp_path / str(number)
        folder.mkdir()
        _, result, expected = profile_plant(voxloom, folder, name, draw, steps=10)
        assert result["bottleneck"]["name"] in expected, (name, result["bottleneck"], result["stages"])


def test_a_step_on_gpus_that_are_not_here(voxloom, tmp_path):
    recipe = tmp_path / "recipe.yaml"  # its data does not exist
    recipe.write_text("data: {root: absent, patch_size: [64, 64, 64], batch_size: 3}\n"
                      "model: {architecture: unet, filters: [32, 64, 128]}\ntraining: {precision: bf16-mixed}\n")
    result = profile(voxloom, recipe, "--on", "all", "training.accumulate=2")
    assert result["modelled"] is True and result["batch"] == 3 and result["accumulation"] == 2
    gpus = {gpu["gpu"]: gpu for gpu in result["gpus"]}
    assert list(gpus) == ["rtx3090", "rtx4090", "a100-40", "a100-80", "h100", "h200"]
    for gpu in gpus.values():
        assert gpu["modelled"] is True and gpu["fits"] and gpu["largest_batch"] >= 3
        assert sum(gpu["stages"].values()) == pytest.approx(gpu["step_ms"])
        assert gpu["samples_per_s"] == pytest.approx(6000 / gpu["step_ms"])
        assert gpu["memory_gb"] <= gpu["usable_gb"]
    assert gpus["h200"]["step_ms"] < gpus["a100-80"]["step_ms"] < gpus["rtx3090"]["step_ms"]
    assert {layer["kernel"] for layer in gpus["h200"]["layers"]} == {"own", "cudnn"}
    assert "modelled, not measured" in voxloom("profile", recipe, "--on", "h100").stdout
    unknown = voxloom("profile", recipe, "--on", "gtx1080", check=False)
    assert unknown.returncode == 1 and "gtx1080" in unknown.stderr and "rtx3090, rtx4090, a100-40" in unknown.stderr


def test_the_guide_to_gpus_is_what_the_program_says():
    check = subprocess.run([sys.executable, REPOSITORY / "tools" / "gpu_guide.py", "--check", "--only", "hippocampus/train",
                            "--program", PROGRAM], capture_output=True, text=True)
    assert check.returncode == 0, check.stdout + check.stderr
    guide = (REPOSITORY / "docs" / "gpu-guide.md").read_text()
    missing = [path for path in sorted((REPOSITORY / "recipes").glob("*/*.yaml"))
               if f"| `{path.parent.name}/{path.stem}` |" not in guide]
    assert not missing, "write docs/gpu-guide.md anew with tools/gpu_guide.py"


def test_wrong_input_is_refused(voxloom, recipe, tmp_path):
    missing = voxloom("profile", tmp_path / "absent.yaml", "--json", check=False)
    assert missing.returncode == 1 and "absent.yaml" in missing.stderr and not missing.stdout
    for words in (["--data-only", "--no-data"], [recipe, "--data-only"]):
        both = voxloom("profile", recipe, *words, check=False)
        assert both.returncode == 2 and not both.stdout
    np.save(tmp_path / "images" / "case_000.npy", np.full((32, 36, 40), np.nan, np.float32))
    broken = voxloom("profile", recipe, "--json", check=False)
    assert broken.returncode == 1 and "case_000" in broken.stderr and not broken.stdout
