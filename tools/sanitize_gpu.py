#!/usr/bin/env python3
"""compute-sanitizer over our CUDA kernels, with the tests' small cases; groups of tests run side by side.

    tools/sanitize_gpu.py [--program build/gpu/src/vox_cuda_test] [--tool racecheck --tool memcheck] [--limit 90]

Kernels of others (torch, cuDNN), which the tests compare with, run as they are, and calls that fail, as some tests want
them to, are not reported. Left out are tests of speed and of large volumes, those of whole networks, whose kernels the
others launch, and those of NCCL. Exit 0: every group ended without a finding.
For racecheck build with -DVOX_RACECHECK=ON: it does not see that a lane arrives for its warp, and reports the exchange
between blocks otherwise.
"""
import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent
NAMED = {"convolutions": "Conv3dCuda.*", "norm, head, upsample": "NormCuda.*:HeadCuda.*:UpsampleCuda.*",
         "losses": "FusedLoss.*:*VolumeLossesCuda.*:VolumeCuda.*",
         "optimizer, gather, transforms": "OptimizerCuda.*:ParametersCuda.*:GatherCuda.*:IntensityCuda.*",
         "sums, skeletons, topology": "NormSums*:*ThinningCuda.*:BettiCuda.*:PersistenceCuda.*:TopologyCuda.*",
         "columns": "ColumnsCuda.*"}
LEFT_OUT = ["*.TimeOf*", "*TakesLittle*", "*Large*", "*AMeanFar*", "*TwoThousand*", "GraphStep*", "*FusedUNet*",
            "DeviceSource*", "TeamSum*"]


def groups():
    listed = dict(NAMED)
    listed["others"] = "*"  # what is written later
    filters = {}
    for name, wanted in listed.items():
        without = LEFT_OUT + (":".join(NAMED.values()).split(":") if name == "others" else [])
        filters[name] = f"{wanted}-{':'.join(without)}"
    return filters


class Run:
    def __init__(self, arguments, tool, name, tests):
        self.tool, self.name, self.output = tool, name, tempfile.TemporaryFile("w+")
        command = ["timeout", str(arguments.limit), "compute-sanitizer", "--tool", tool, "--error-exitcode", "9",
                   *(["--report-api-errors", "no"] if tool == "memcheck" else []),
                   "--kernel-regex", "kns=vox", arguments.program, f"--gtest_filter={tests}"]
        environment = os.environ | {"VOXLOOM_SMALL_TESTS": "1"}
        self.started = time.monotonic()
        self.process = subprocess.Popen(command, stdout=self.output, stderr=subprocess.STDOUT, env=environment)

    def report(self):
        code = self.process.wait()
        self.seconds = time.monotonic() - self.started
        self.output.seek(0)
        text = self.output.read()
        passed = len(re.findall(r"^\[       OK \]", text, re.MULTILINE))
        summary = [line.strip("= ") for line in text.splitlines() if "SUMMARY" in line]
        failed = re.findall(r"^\[  FAILED  \] (\S+) \(", text, re.MULTILINE)
        skipped = "[  SKIPPED ]" in text  # no GPU: nothing was looked at
        without_errors = bool(summary) and "(0 errors" in summary[-1].replace(": 0 errors", " (0 errors")
        clean = code == 0 and without_errors and not skipped and not failed
        verdict = "clean" if clean else "skipped" if skipped else "not ended" if code == 124 else f"exit {code}"
        print(f"{self.tool:<10} {self.name:<30} {verdict}: {passed} tests, {self.seconds:.0f} s; {' '.join(summary)} "
              f"{' '.join(failed)}", flush=True)
        if not clean:
            shown = [line for line in text.splitlines() if line.startswith("=====") or " ms)" in line]
            shown = shown if len(shown) <= 24 else [*shown[:12], "...", *shown[-12:]]
            print("\n".join("    " + line[:180] for line in shown), flush=True)
        return clean


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=str(REPOSITORY / "build" / "gpu" / "src" / "vox_cuda_test"))
    parser.add_argument("--tool", action="append", choices=["memcheck", "racecheck", "initcheck", "synccheck"])
    parser.add_argument("--limit", type=int, default=90, help="seconds for each group")
    arguments = parser.parse_args()
    if not pathlib.Path(arguments.program).exists():
        sys.exit(f"{arguments.program} does not exist; build with CUDA and -DVOX_TESTS=ON, or name it with --program")
    if not shutil.which("compute-sanitizer"):
        sys.exit("compute-sanitizer is not on the PATH; it comes with the CUDA toolkit")
    runs = [Run(arguments, tool, name, tests) for tool in arguments.tool or ["racecheck", "memcheck"]
            for name, tests in groups().items()]
    return 0 if all([run.report() for run in runs]) else 1


if __name__ == "__main__":
    sys.exit(main())
