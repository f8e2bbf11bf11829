"""What tools/sanitize_gpu.py makes of what compute-sanitizer says; the tool and the tests are stand-ins here."""
import os
import pathlib
import subprocess
import sys

import pytest

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent
# The tool fails at ColumnsCuda.Folded/0, as on an H200 with CUDA 13.0, and at all that runs behind it.
SANITIZER = """#!/bin/sh
for last; do :; done
summary() { echo "========= RACECHECK SUMMARY: $1 hazards displayed ($1 errors, 0 warnings)"; exit $2; }
case $last in
  --gtest_filter=ColumnsCuda.\\**|*Folded/0)
    echo "========= Internal Sanitizer Error: The Sanitizer failed to handle a hardware exception."
    echo "[  FAILED  ] ColumnsCuda.Folded/0 (6060 ms)"
    echo "========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)"; exit 9;;
  *Narrow) case $NARROW in
    race) echo "[       OK ] ColumnsCuda.Narrow (1 ms)"
      echo "========= Error: Race reported between Write access at f() and Read access at f() [4 hazards]"; summary 1 9;;
    both) echo "========= Internal Sanitizer Error: The Sanitizer failed to handle a hardware exception."; summary 2 9;;
    wrong) echo "[  FAILED  ] ColumnsCuda.Narrow (1 ms)"; summary 0 1;;
    skips) echo "[  SKIPPED ] ColumnsCuda.Narrow (1 ms)"; summary 0 0;;
    hangs) exit 124;; # as `timeout` ends
  esac;;
esac
echo "[       OK ] ColumnsCuda.Narrow (1 ms)"; summary 0 0
"""
TESTS = """#!/bin/sh
echo "Running main() from gtest_main.cc"
echo "ColumnsCuda."; echo "  Folded/0  # GetParam() = 4-byte object <01-00 00-00>"; echo "  Narrow"
"""


@pytest.fixture
def sanitize(tmp_path):
    for name, text in (("compute-sanitizer", SANITIZER), ("tests", TESTS)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)

    def run(narrow):
        command = [sys.executable, REPOSITORY / "tools" / "sanitize_gpu.py", "--program", tmp_path / "tests",
                   "--tool", "racecheck"]
        environment = os.environ | {"NARROW": narrow, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
        return subprocess.run(command, capture_output=True, text=True, env=environment)

    return run


def last_line(result):
    return result.stdout.splitlines()[-1]


def test_a_group_at_which_the_tool_fails_is_judged_test_by_test(sanitize):
    result = sanitize("clean")
    assert result.returncode == 2, result.stdout + result.stderr
    assert last_line(result) == "not judged: racecheck ColumnsCuda.Folded/0"
    assert "1 of 2 are clean" in result.stdout


@pytest.mark.parametrize("narrow, status, verdict", [
    ("race", 1, "found something"), ("both", 1, "found something"), ("wrong", 1, "exit 1"), ("skips", 2, "nothing ran"),
    ("hangs", 2, "not ended")])
def test_only_what_ran_to_its_end_is_clean(sanitize, narrow, status, verdict):
    result = sanitize(narrow)
    assert result.returncode == status, result.stdout + result.stderr
    assert f"ColumnsCuda.Narrow             {verdict}: " in result.stdout and "0 of 2 are clean" in result.stdout
    assert ("ColumnsCuda.Narrow" in last_line(result)) == (status == 2)


def test_without_an_error_of_the_tool_groups_run_once(sanitize, tmp_path):
    path = tmp_path / "compute-sanitizer"
    path.write_text(SANITIZER.replace("ColumnsCuda.\\**|", ""))
    result = sanitize("clean")
    assert result.returncode == 0, result.stdout + result.stderr
    assert len(result.stdout.splitlines()) == 7 and result.stdout.count(" clean: 1 tests") == 7
