"""Many more stops at random moments than `make test` has time for, and the demo as a newcomer runs it."""
import pathlib
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from conftest import PROGRAM  # noqa: E402
from test_resume import LONG, start, wait_for_steps  # noqa: E402
from training import assert_same_weights, checkpoint, write_training  # noqa: E402


def test_a_hundred_stops_change_no_bit(draw, tmp_path):
    recipe = write_training(tmp_path, draw)
    options = [*LONG, "training.max_epochs=40", "system.num_gpus=0"]  # bit for bit is the promise of the CPU
    assert start(recipe, tmp_path / "unbroken", *options).wait() == 0
    for number in range(100):
        process = start(recipe, tmp_path / "run", *options, f"data.num_workers={draw.randrange(1, 6)}",
                        "monitor.log_every=1")
        wait_for_steps(tmp_path / "run", draw.randrange(1, 15), process)
        process.send_signal(draw.choice([2, 9, 15]))
        process.communicate()
    assert start(recipe, tmp_path / "run", *options).wait() == 0
    assert_same_weights(checkpoint(tmp_path / "run"), checkpoint(tmp_path / "unbroken"))


def test_the_demo_ends_with_the_score_that_evaluate_gives(tmp_path):
    result = subprocess.run([PROGRAM, "demo"], cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    last = result.stdout.splitlines()[-1]
    score = float(re.fullmatch(r"held-out Dice (0\.\d{3})", last)[1])
    assert score > 0.8
    command = re.search(r"voxloom (evaluate .*)", result.stdout)[1].split()
    told = subprocess.run([PROGRAM, *command, "--json"], cwd=tmp_path, capture_output=True, text=True, check=True)
    import json
    assert f"{json.loads(told.stdout)['mean']['dice']:.3f}" == f"{score:.3f}"
