#!/usr/bin/env python3
"""What continuous integration checks, stage by stage, each within its share of the time budget."""
import os
import pathlib
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
PYTHON = ROOT / ".venv/bin/python"
MINUTES = {"compile": 19, "unit tests": 2, "whole-program tests": 19}


def sources():
    listed = subprocess.run(["git", "ls-files", "*.h", "*.cpp", "*.cu", "*.cuh"], cwd=ROOT, capture_output=True,
                            text=True, check=True)
    return [name for name in listed.stdout.split() if (ROOT / name).exists()]


def run(title, command, minutes=5):
    start = time.monotonic()
    process = subprocess.Popen(command, cwd=ROOT, start_new_session=True)
    try:
        status = process.wait(minutes * 60)
    except BaseException as stopped:
        os.killpg(process.pid, signal.SIGKILL)  # with all that it started: a compiler would go on by itself
        process.wait()
        if not isinstance(stopped, subprocess.TimeoutExpired):
            raise
        print(f"==== {title}: over its budget of {minutes} minutes", flush=True)
        return False
    seconds = time.monotonic() - start
    print(f"==== {title}: {'ok' if status == 0 else 'FAILED'}, {seconds:.0f} s of {minutes * 60} s", flush=True)
    return status == 0


def main():
    jobs = os.environ.get("JOBS", str(os.cpu_count()))
    compile_minutes = MINUTES["compile"]
    checks = [
        ("format", [str(ROOT / ".venv/bin/clang-format"), "--dry-run", "--Werror", *sources()], 5),
        ("layers", [str(PYTHON), "tools/check_layers.py"], 5),
        ("configure", ["cmake", "--preset", "release", *sys.argv[1:]], 5),
        ("compile", ["cmake", "--build", "build", "-j", jobs], compile_minutes),
    ]
    for title, command, minutes in checks:
        if not run(title, command, minutes):
            return 1
    passed = run("unit tests", ["ctest", "--test-dir", "build", "--output-on-failure"], MINUTES["unit tests"])
    passed &= run("whole-program tests", [str(PYTHON), "-m", "pytest", "-q", "-rs", "--durations=10", "tests",
                                          "--ignore=tests/soak"], MINUTES["whole-program tests"])
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
