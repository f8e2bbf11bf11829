#!/usr/bin/env python3
"""Checks that each folder of src/ includes only what the layout allows, and that torch stays above its line."""
import pathlib
import re
import sys

SOURCE = pathlib.Path(__file__).resolve().parent.parent / "src"

# The brackets of src/README.md, in its order.
ALLOWED = {
    "base": "",
    "config": "base",
    "io": "base",
    "kernels": "base",
    "volume": "base config io kernels",
    "plan": "base config io volume kernels",
    "patch": "base config volume",
    "augment": "base config patch kernels",
    "targets": "base config kernels",
    "pipeline": "base config volume patch augment targets kernels",
    "ops": "base kernels",
    "nets": "base config ops",
    "losses": "base config ops",
    "metrics": "base config kernels",
    "post": "base config kernels",
    "synth": "base io kernels",
    "infer": "base config io volume post kernels ops nets",
    "report": "base",
    "train": "base config pipeline volume kernels ops nets losses infer metrics report",
}
FOLDERS = [*ALLOWED, "measure", "cli"]
ALLOWED = {folder: set(names.split()) | {folder} for folder, names in ALLOWED.items()}
ALLOWED["measure"] = set(FOLDERS) - {"cli"}
ALLOWED["cli"] = set(FOLDERS)
# A test may make its own data and drive what lies above it.
FOR_TESTS = {"synth", "io"}

TORCH_FOLDERS = {"ops", "nets", "losses", "infer", "train", "measure", "cli"}
THIRD_PARTY = {  # header prefix -> folders that may use it
    "yaml-cpp/": {"config"},
    "CLI/": {"cli"},
    "torch/": TORCH_FOLDERS, "ATen/": TORCH_FOLDERS, "c10/": TORCH_FOLDERS,
    "zstd.h": {"io"}, "lz4.h": {"io", "volume"}, "zlib.h": {"io", "report"}, "hdf5.h": {"io"}, "png.h": {"io"},
    "cuda": {"kernels"}, "mma.h": {"kernels"},
}
ATEN_CUDA_FILES = 3


def includes(path):
    for number, line in enumerate(path.read_text().splitlines(), 1):
        match = re.match(r'\s*#\s*include\s*([<"])([^">]+)[">]', line)
        if match:
            yield number, match.group(1) == '"', match.group(2)


def problems_of(path):
    folder = path.relative_to(SOURCE).parts[0]
    allowed = ALLOWED[folder] | (FOR_TESTS if path.stem.endswith(("_test", "_bench")) else set())
    for number, quoted, header in includes(path):
        place = f"{path.relative_to(SOURCE.parent)}:{number}"
        if quoted and header.split("/")[0] in ALLOWED and header.split("/")[0] not in allowed:
            yield f"{place}: {folder}/ may not include {header}"
        if quoted and header.split("/")[0] not in ALLOWED:
            yield f"{place}: includes are written \"folder/file.h\", not {header}"
        for prefix, folders in THIRD_PARTY.items():
            in_gpu_test = "cuda_test" in path.stem and folders is TORCH_FOLDERS  # device memory comes from torch there
            if not quoted and header.startswith(prefix) and folder not in folders and not in_gpu_test:
                yield f"{place}: {folder}/ may not include <{header}>"
        if path.suffix == ".h" and header == "nlohmann/json.hpp":
            yield f"{place}: json stays in .cpp files"


def main():
    files = [path for path in sorted(SOURCE.rglob("*")) if path.suffix in {".h", ".cpp", ".cu", ".cuh"}]
    problems = [problem for path in files for problem in problems_of(path)]
    cuda = [path for path in files if any("ATen/cuda" in header or "c10/cuda" in header for _, _, header in includes(path))]
    if len(cuda) > ATEN_CUDA_FILES:
        problems.append(f"ATen/cuda is included by {len(cuda)} files, not at most {ATEN_CUDA_FILES}: {cuda}")
    problems += [f"{path.relative_to(SOURCE.parent)}: not ASCII" for path in files if not path.read_bytes().isascii()]
    print("\n".join(problems) if problems else f"ok: {len(files)} files keep the layers")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
