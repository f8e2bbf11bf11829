"""The program as a process: started, waited for and ended; what it takes of the machine: memory, threads."""
import pathlib
import subprocess
import sys
import time

import pytest
from conftest import PROGRAM
from training import rows

STARTED = []

# In a child of its own, which starts small: a process is also charged with what its parent held when it began.
MEASURE = ("import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL);"
           "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)")


def peak_kib(*arguments):
    command = [sys.executable, "-c", MEASURE, PROGRAM, *arguments]
    return int(subprocess.run([str(word) for word in command], check=True, capture_output=True, text=True).stdout)


def runnable_threads(process):
    """Threads of the process that are on a CPU or wait for one, and all of them."""
    states = []
    for task in pathlib.Path(f"/proc/{process.pid}/task").iterdir():
        try:
            states.append((task / "stat").read_text().rpartition(") ")[2].split()[0])
        except (FileNotFoundError, ProcessLookupError):
            pass
    return states.count("R"), len(states)


def start_program(*arguments):
    """At work. A test module that imports `none_is_left` leaves none behind, however its tests end."""
    process = subprocess.Popen([str(word) for word in (PROGRAM, *arguments)], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)
    STARTED.append(process)
    return process


@pytest.fixture(autouse=True)
def none_is_left():
    yield
    while STARTED:
        process = STARTED.pop()
        if process.poll() is None:
            process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()


def wait_until(holds, process, seconds=240):
    """True: it holds; False: the process ended before."""
    deadline = time.monotonic() + seconds
    while not holds():
        if process.poll() is not None:
            return False
        assert time.monotonic() < deadline, f"nothing came of {process.args} in {seconds} s"
        time.sleep(0.01)
    return True


def last_step(run):
    return max([0, *(int(row["step"]) for row in rows(run))]) if (run / "metrics.csv").exists() else 0


def wait_for_step(run, step, process):
    """Until the run, which this process began, has logged it."""
    return wait_until(lambda: last_step(run) >= step, process)
