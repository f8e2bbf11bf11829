#!/usr/bin/env python3
"""compute-sanitizer over our CUDA kernels, with the tests' small cases; groups of tests run side by side.

    tools/sanitize_gpu.py [--program build/gpu/src/vox_cuda_test] [--tool racecheck --tool memcheck] [--limit 90]

Kernels of others (torch, cuDNN), which the tests compare with, run as they are, and calls that fail, as some tests want
them to, are not reported. Left out are tests of speed, of times and of large volumes, those of whole networks, whose
kernels the others launch, and those of NCCL.
At some kernels the tool ends in an error of its own and sees nothing of the tests behind them: such a group is repeated
test by test. Exit 0: all is clean; 1: something was found, or a test failed; 2: neither, but the tests named last were
not judged, because the tool failed at them, or they did not end, or skipped themselves.
For racecheck build with -DVOX_RACECHECK=ON: it does not see that a lane arrives for its warp, and reports the exchange
between blocks otherwise.
"""
import argparse
import concurrent.futures
import dataclasses
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent
NAMED = {"convolutions": "Conv3dCuda.*", "norm, head, upsample": "NormCuda.*:HeadCuda.*:UpsampleCuda.*",
         "losses": "FusedLoss.*:*VolumeLossesCuda.*:VolumeCuda.*",
         "optimizer, gather, transforms": "OptimizerCuda.*:ParametersCuda.*:GatherCuda.*:IntensityCuda.*",
         "sums, skeletons, topology": "NormSums*:*ThinningCuda.*:BettiCuda.*:PersistenceCuda.*:TopologyCuda.*",
         "columns": "ColumnsCuda.*"}
LEFT_OUT = ["*.TimeOf*", "*TakesLittle*", "*Large*", "*AMeanFar*", "*TwoThousand*", "GraphStep*", "*FusedUNet*",
            "DeviceSource*", "TeamSum*", "TermTimes.*"]
TOOLS_OWN = "Internal Sanitizer Error"
FINDING = re.compile(r"^=+ +(Error: Race|Invalid |Uninitialized |Barrier error)", re.MULTILINE)


def groups():
    listed = dict(NAMED)
    listed["others"] = "*"  # what is written later
    filters = {}
    for name, wanted in listed.items():
        without = LEFT_OUT + (":".join(NAMED.values()).split(":") if name == "others" else [])
        filters[name] = f"{wanted}-{':'.join(without)}"
    return filters


@dataclasses.dataclass
class Outcome:
    verdict: str
    bad: bool = False  # something was found, or a test failed
    not_judged: tuple = ()
    tool_failed: bool = False


def judge(code, text, name):
    """What a run says that ended with `code`; its summary counts an error of the tool as one of ours."""
    summary = [line for line in text.splitlines() if "SUMMARY" in line]
    counted = re.search(r"(\d+) errors?\b", summary[-1]) if summary else None
    tools_own = text.count(TOOLS_OWN)
    if FINDING.search(text) or (counted and int(counted[1]) > tools_own):
        return Outcome("found something", bad=True, tool_failed=tools_own > 0)
    if tools_own:  # whatever failed behind it failed because of it
        return Outcome("the tool's own error", not_judged=(name,), tool_failed=True)
    if code == 124:
        return Outcome("not ended", not_judged=(name,))
    if code != 0 or not counted or "[  FAILED  ]" in text:
        return Outcome(f"exit {code}", bad=True)
    if "[       OK ]" not in text:
        return Outcome("nothing ran", not_judged=(name,))
    skipped = re.findall(r"^\[  SKIPPED \] (\S+) \(", text, re.MULTILINE)
    return Outcome("clean but for what was skipped" if skipped else "clean", not_judged=tuple(skipped))


def run(arguments, tool, name, tests):
    command = ["timeout", str(arguments.limit), "compute-sanitizer", "--tool", tool, "--error-exitcode", "9",
               *(["--report-api-errors", "no"] if tool == "memcheck" else []),
               "--kernel-regex", "kns=vox", arguments.program, f"--gtest_filter={tests}"]
    started = time.monotonic()
    ended = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                           env=os.environ | {"VOXLOOM_SMALL_TESTS": "1"})
    outcome = judge(ended.returncode, ended.stdout, name)
    lines = ended.stdout.splitlines()
    passed = sum(line.startswith("[       OK ]") for line in lines)
    summary = " ".join(line.strip("= ") for line in lines if "SUMMARY" in line)
    shown = [f"{tool:<10} {name:<30} {outcome.verdict}: {passed} tests, {time.monotonic() - started:.0f} s; {summary}"]
    if outcome.bad or outcome.not_judged:
        details = ["    " + line[:180] for line in lines if line.startswith("=====") or " ms)" in line]
        shown += details if len(details) <= 24 else [*details[:12], "    ...", *details[-12:]]
    sys.stdout.write("\n".join(shown) + "\n")  # at once: others write too
    sys.stdout.flush()
    return outcome


def names_of(program, tests):
    listed = subprocess.run([program, "--gtest_list_tests", f"--gtest_filter={tests}"], stdout=subprocess.PIPE,
                            text=True).stdout
    names, suite = [], ""
    for line in listed.splitlines():
        word = line.split("#")[0].strip()  # behind it are the values of parameters
        if line.startswith("  "):
            names.append(suite + word)
        elif word.endswith("."):
            suite = word
    return names


def run_group(arguments, tool, name, tests, alone):
    """The outcome of a group, or those of its tests."""
    outcome = run(arguments, tool, name, tests)
    names = names_of(arguments.program, tests) if outcome.tool_failed else []
    if not names:
        return [outcome]
    outcomes = list(alone.map(lambda test: run(arguments, tool, test, test), names))
    clean = sum(one.verdict == "clean" for one in outcomes)
    print(f"{tool:<10} {name + ', test by test':<30} {clean} of {len(names)} are clean", flush=True)
    return [outcome, *outcomes] if outcome.bad else outcomes


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=str(REPOSITORY / "build" / "gpu" / "src" / "vox_cuda_test"))
    parser.add_argument("--tool", action="append", choices=["memcheck", "racecheck", "initcheck", "synccheck"])
    parser.add_argument("--limit", type=int, default=90, help="seconds for a group, and for a test that runs alone")
    parser.add_argument("--alone", type=int, default=8, help="tests side by side that run alone")
    arguments = parser.parse_args()
    if not pathlib.Path(arguments.program).exists():
        sys.exit(f"{arguments.program} does not exist; build with CUDA and -DVOX_TESTS=ON, or name it with --program")
    if not shutil.which("compute-sanitizer"):
        sys.exit("compute-sanitizer is not on the PATH; it comes with the CUDA toolkit")
    wanted = [(tool, name, tests) for tool in arguments.tool or ["racecheck", "memcheck"]
              for name, tests in groups().items()]
    workers = concurrent.futures.ThreadPoolExecutor
    with workers(arguments.alone) as alone, workers(len(wanted)) as together:
        judged = list(together.map(lambda group: run_group(arguments, *group, alone), wanted))
    not_judged = [f"{tool} {name}" for (tool, _, _), outcomes in zip(wanted, judged)
                  for outcome in outcomes for name in outcome.not_judged]
    if not_judged:
        print("not judged:", ", ".join(not_judged))
    return 1 if any(outcome.bad for outcomes in judged for outcome in outcomes) else 2 if not_judged else 0


if __name__ == "__main__":
    sys.exit(main())
