"""Rotation and scale of a 128^3 patch, one core: voxloom's gather beside MONAI's RandAffine.

    python bench/gather_peers.py [--program build/voxloom] [--rounds 21] [--size 128] [--json FILE]

Both draw a new rotation (up to 30 degrees about each axis) and a new scale (0.8 to 1.2 on each axis) every time, with
linear interpolation and zeros outside, from a volume in memory. MONAI gets float32, what its loaders hold; voxloom the
uint8 it was stored in, and, as a second line, float32 too. Costs are CPU time of the one thread, which a busy machine
does not distort; each is the median of a few calls in a round.
"""
import argparse
import json
import math
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import numpy
import torch
from monai.transforms import RandAffine

import pairs

BAR = 10
REPOSITORY = pathlib.Path(__file__).resolve().parent.parent
CALLS = 3


def gather_by_voxloom(program, volume, size, seed):
    output = subprocess.run([program, "bench", "gather", "--volume", volume, "--size", str(size), "--seed", str(seed),
                             "--repeats", str(CALLS + 1), "--json"], check=True, capture_output=True, text=True).stdout
    return json.loads(output)[0]["cpu_ms"]


class Monai:
    def __init__(self, volume, size):
        angle = math.radians(30)
        self.volume = torch.from_numpy(volume.astype(numpy.float32))[None]
        self.transform = RandAffine(prob=1.0, rotate_range=(angle,) * 3, scale_range=(0.2,) * 3,
                                    spatial_size=(size,) * 3, mode="bilinear", padding_mode="zeros")
        self.transform.set_random_state(0)

    def __call__(self):
        costs = []
        for _ in range(CALLS):
            start = time.thread_time()
            self.transform(self.volume)
            costs.append(1e3 * (time.thread_time() - start))
        return statistics.median(costs)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", default=REPOSITORY / "build" / "voxloom")
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    volume = numpy.random.default_rng(0).integers(0, 256, (options.size,) * 3, dtype=numpy.uint8)
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        contenders = {"monai": Monai(volume, options.size)}
        for dtype in ("uint8", "float32"):
            path = pathlib.Path(folder) / f"{dtype}.npy"
            numpy.save(path, volume.astype(dtype))
            contenders[dtype] = lambda path=path: gather_by_voxloom(options.program, path, options.size,
                                                                    numpy.random.randint(2**31))
        costs = pairs.interleave(contenders, options.rounds)
    for dtype in ("uint8", "float32"):
        results[dtype] = result = pairs.compare(costs, dtype, "monai") | {"bar": BAR}
        print(f"{dtype:8} voxloom {result['ours']:6.2f} ms  MONAI RandAffine {result['peer']:7.1f} ms  "
              f"ratio {result['ratio']:5.1f} [{result['low']:.1f}, {result['high']:.1f}]  bar {BAR}: "
              f"{pairs.verdict(result, BAR)}")
    if options.json:
        options.json.write_text(json.dumps(results, indent=2))
    return 0 if results["uint8"]["low"] >= BAR else 1


if __name__ == "__main__":
    sys.exit(main())
