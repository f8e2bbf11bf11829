"""LZW TIFF of 320^3: voxloom with two threads beside tifffile (imagecodecs), its default and with maxworkers=2.

    python bench/tiff_peers.py [--program build/voxloom] [--rounds 21] [--size 320] [--json FILE]

All read from the page cache. Each program times itself around opening and reading, so that starting up counts for
none. Every contender checks the voxels once before anything is timed.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy
import scipy.ndimage
import tifffile

import pairs

BARS = {"tifffile": 2.5, "tifffile maxworkers=2": 1.5}
REPOSITORY = pathlib.Path(__file__).resolve().parent.parent


def scroll_ct(size, seed=1):
    """Smooth sheets with detector noise: as in scroll CT, LZW gains nothing on it."""
    source = numpy.random.default_rng(seed)
    smooth = scipy.ndimage.gaussian_filter(source.standard_normal((size, size, size), dtype=numpy.float32), 3)
    smooth *= 30 / smooth.std()
    smooth += source.standard_normal(smooth.shape, dtype=numpy.float32) * 12 + 110
    return numpy.clip(smooth, 0, 255).astype(numpy.uint8)


def labels(size, seed=2):
    """Thin sheets (1), a part that nobody labelled (2), and background."""
    source = numpy.random.default_rng(seed)
    smooth = scipy.ndimage.gaussian_filter(source.standard_normal((size, size, size), dtype=numpy.float32), 6)
    label = (numpy.abs(smooth) < 0.15 * smooth.std()).astype(numpy.uint8)
    label[:, : size // 5] = 2
    return label


def read_by_voxloom(program, path):
    output = subprocess.run([program, "bench", "io", path, "--threads", "2", "--repeats", "1", "--json"], check=True,
                            capture_output=True, text=True).stdout
    return json.loads(output)[0]["median_ms"]


def read_by_tifffile(path, **options):
    start = time.perf_counter()
    tifffile.imread(path, **options)
    return 1e3 * (time.perf_counter() - start)


def check_voxels(program, path, expected, folder):
    target = folder / "check.npy"
    subprocess.run([program, "convert", path, target], check=True, capture_output=True)
    assert numpy.array_equal(numpy.load(target), expected), f"{path}: voxloom and numpy disagree"
    assert numpy.array_equal(tifffile.imread(path), expected)


def measure(program, path, rounds):
    costs = pairs.interleave({
        "voxloom": lambda: read_by_voxloom(program, path),
        "tifffile": lambda: read_by_tifffile(path),
        "tifffile maxworkers=2": lambda: read_by_tifffile(path, maxworkers=2),
    }, rounds)
    return {peer: pairs.compare(costs, "voxloom", peer) | {"bar": bar} for peer, bar in BARS.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", default=REPOSITORY / "build" / "voxloom")
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--size", type=int, default=320)
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    results, failed = {}, False
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for name, volume in {"scroll CT": scroll_ct(options.size), "labels": labels(options.size)}.items():
            path = folder / f"{name.replace(' ', '_')}.tif"
            tifffile.imwrite(path, volume, compression="lzw", photometric="minisblack")
            check_voxels(options.program, path, volume, folder)
            results[name] = measure(options.program, path, options.rounds)
            for peer, result in results[name].items():
                word = pairs.verdict(result, result["bar"])
                failed |= word != "holds"
                print(f"{name:9}  {volume.nbytes / path.stat().st_size:6.2f}:1  voxloom {result['ours']:7.1f} ms  "
                      f"{peer:22} {result['peer']:7.1f} ms  ratio {result['ratio']:5.2f} "
                      f"[{result['low']:.2f}, {result['high']:.2f}]  bar {result['bar']}: {word}")
    if options.json:
        options.json.write_text(json.dumps(results, indent=2))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
