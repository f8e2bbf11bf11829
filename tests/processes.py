"""What the program takes of the machine: memory, threads."""
import pathlib
import subprocess
import sys

from conftest import PROGRAM

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
