"""Distance transform and components beside edt and cc3d, one core, 128^3, on the same arrays in one process.

    python bench/metrics_peers.py [--build build] [--rounds 21] [--size 128] [--json FILE]

Thin curved sheets and their complement. Results are compared before anything is timed.
"""
import argparse
import ctypes
import json
import math
import pathlib
import subprocess
import sys
import tempfile
import time

import cc3d
import edt
import numpy
import scipy.ndimage

import pairs

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent


def load_kernels(build, folder):
    library = folder / "kernels.so"
    archives = [str(path) for name in ("kernels", "base") for path in build.rglob(f"libvox_{name}.a")]
    subprocess.run(["g++", "-std=c++20", "-O2", "-march=x86-64-v3", "-shared", "-fPIC", "-I", str(REPOSITORY / "src"),
                    str(REPOSITORY / "bench" / "kernel_shim.cpp"), *archives, "-lpthread", "-o", str(library)], check=True)
    kernels = ctypes.CDLL(str(library))
    kernels.shim_components.restype = ctypes.c_int64
    return kernels


def sheets(size, seed=1):
    smooth = scipy.ndimage.gaussian_filter(numpy.random.default_rng(seed).standard_normal((size, size, size), dtype=numpy.float32), 6)
    return (numpy.abs(smooth) < numpy.quantile(numpy.abs(smooth), 0.1)).astype(numpy.uint8)


def call(function, out, mask, *more):
    return function(out.ctypes.data_as(ctypes.c_void_p), mask.ctypes.data_as(ctypes.c_void_p),
                    *map(ctypes.c_int64, mask.shape), *more)


def timed(work):
    def run():
        start = time.perf_counter()
        work()
        return 1e3 * (time.perf_counter() - start)
    return run


def compare_edt(kernels, mask, rounds):
    out = numpy.empty(mask.shape, numpy.float32)
    call(kernels.shim_edt, out, mask)
    assert numpy.array_equal(out, edt.edtsq(mask, parallel=1)), "the distances differ"
    costs = pairs.interleave({"voxloom": timed(lambda: call(kernels.shim_edt, out, mask)),
                              "edt": timed(lambda: edt.edtsq(mask, parallel=1))}, rounds)
    return pairs.compare(costs, "voxloom", "edt")


def compare_components(kernels, mask, connectivity, rounds):
    out = numpy.empty(mask.shape, numpy.uint32)
    count = call(kernels.shim_components, out, mask, connectivity)
    theirs = cc3d.connected_components(mask, connectivity=connectivity)
    assert count == theirs.max() and len(numpy.unique(theirs.astype(numpy.int64) << 32 | out)) == count + 1, "components differ"
    costs = pairs.interleave({"voxloom": timed(lambda: call(kernels.shim_components, out, mask, connectivity)),
                              "cc3d": timed(lambda: cc3d.connected_components(mask, connectivity=connectivity))}, rounds)
    return pairs.compare(costs, "voxloom", "cc3d")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, default=REPOSITORY / "build")
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    mask = sheets(options.size)
    masks = {"sheets": mask, "complement": 1 - mask}
    with tempfile.TemporaryDirectory() as folder:
        kernels = load_kernels(options.build, pathlib.Path(folder))
        results = {f"edt {name}": compare_edt(kernels, volume, options.rounds) for name, volume in masks.items()}
        for connectivity in (6, 18, 26):
            results[f"components {connectivity}"] = compare_components(kernels, mask, connectivity, options.rounds)
    for name, result in results.items():
        print(f"{name:15} voxloom {result['ours']:7.2f} ms  peer {result['peer']:7.2f} ms  ratio {result['ratio']:5.2f} "
              f"[{result['low']:.2f}, {result['high']:.2f}]")
    lows = math.sqrt(results["edt sheets"]["low"] * results["edt complement"]["low"])
    slow = [name for name, result in results.items() if name.startswith("components") and result["low"] < 1]
    print(f"edt, geometric mean: at least {lows:.2f} (bar 2): {'holds' if lows >= 2 else 'FAILS'}")
    print(f"components (bar 1): {'FAILS for ' + ', '.join(slow) if slow else 'holds'}")
    if options.json:
        options.json.write_text(json.dumps(results, indent=2))
    return 1 if slow or lows < 2 else 0


if __name__ == "__main__":
    sys.exit(main())
