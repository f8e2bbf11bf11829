"""Boxes of 128^3 from a chunked volume of 1 GiB: voxloom with two threads beside zarr-python and h5py.

    python bench/zarr_hdf5_peers.py [--program build/voxloom] [--rounds 15] [--megabytes 1024] [--json FILE]

All read from the page cache, the same boxes for all. Each times itself around opening and reading, in a process that has
read the boxes before: ours is new every round, so it reads them three times and the median counts; the peer's lives on.
zarr-python may use two threads as well; h5py has one lock. The peer's voxels are compared once before anything is timed,
and the mean of ours; tests/test_formats_zarr.py and test_formats_hdf5.py compare every voxel.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import time

import h5py
import numcodecs
import numpy
import scipy.ndimage
import zarr

import pairs

BAR = 2.0
CHUNK, BOX = 64, 128
REPOSITORY = pathlib.Path(__file__).resolve().parent.parent


def volume_of(megabytes):
    """Smooth structure with detector noise in uint8, repeated: packs about as EM and CT do."""
    source = numpy.random.default_rng(1)
    tile = scipy.ndimage.gaussian_filter(source.standard_normal((128, 256, 256), dtype=numpy.float32), 3)
    tile = numpy.clip(tile * (30 / tile.std()) + 110, 0, 255).astype(numpy.uint8) // 4 * 4
    side = 1024
    depth = megabytes * 2**20 // side**2
    return numpy.tile(tile, (depth // 128, side // 256, side // 256))


def write_all(volume, folder):
    chunks = (CHUNK,) * 3
    zarr.config.set({"threading.max_workers": 2, "async.concurrency": 2})
    kinds = {}
    for name, codec in {"zarr blosc lz4": numcodecs.Blosc("lz4", clevel=5, shuffle=1), "zarr gzip": numcodecs.GZip(1)}.items():
        path = folder / f"{name.replace(' ', '_')}.zarr"
        zarr.create_array(path, shape=volume.shape, chunks=chunks, dtype="uint8", zarr_format=2, compressors=codec)[...] = volume
        kinds[name] = path
    for name, options in {"hdf5 gzip": {"compression": "gzip", "compression_opts": 1}, "hdf5 lzf": {"compression": "lzf"},
                          "hdf5 none": {}}.items():
        kinds[name] = folder / f"{name.replace(' ', '_')}.h5"
        with h5py.File(kinds[name], "w") as file:
            file.create_dataset("volume", data=volume, chunks=chunks, **options)
    return kinds


def read_by_voxloom(program, path, count):
    output = subprocess.run([program, "bench", "io", path, "--box", f"{BOX},{BOX},{BOX}", "--count", str(count), "--threads",
                             "2", "--repeats", "3", "--json"], check=True, capture_output=True, text=True).stdout
    return json.loads(output)[0]


def read_by_peer(path, begins):
    start = time.perf_counter()
    if path.suffix == ".h5":
        with h5py.File(path) as file:
            boxes = [file["volume"][z:z + BOX, y:y + BOX, x:x + BOX] for z, y, x in begins]
    else:
        array = zarr.open_array(path, mode="r")
        boxes = [array[z:z + BOX, y:y + BOX, x:x + BOX] for z, y, x in begins]
    return 1e3 * (time.perf_counter() - start), boxes


def check_voxels(program, path, volume, begins):
    for (z, y, x), box in zip(begins, read_by_peer(path, begins)[1]):
        assert numpy.array_equal(box, volume[z:z + BOX, y:y + BOX, x:x + BOX])
    facts = json.loads(subprocess.run([program, "inspect", path, "--json"], check=True, capture_output=True, text=True).stdout)
    assert facts["shape"] == list(volume.shape) and abs(facts["mean"] - volume.mean()) < 1e-6


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", default=REPOSITORY / "build" / "voxloom")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--megabytes", type=int, default=1024)
    parser.add_argument("--count", type=int, default=8, help="boxes a round")
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    results, failed = {}, False
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        volume = volume_of(options.megabytes)
        for name, path in write_all(volume, folder).items():
            begins = read_by_voxloom(options.program, path, options.count)["begins"]
            check_voxels(options.program, path, volume, begins)
            costs = pairs.interleave({
                "voxloom": lambda: read_by_voxloom(options.program, path, options.count)["median_ms"],
                "peer": lambda: read_by_peer(path, begins)[0],
            }, options.rounds)
            result = results[name] = pairs.compare(costs, "voxloom", "peer") | {"bar": BAR}
            word = pairs.verdict(result, BAR)
            failed |= word != "holds"
            print(f"{name:15} voxloom {result['ours'] / options.count:6.2f} ms a box  peer {result['peer'] / options.count:6.2f} ms  "
                  f"ratio {result['ratio']:5.2f} [{result['low']:.2f}, {result['high']:.2f}]  bar {BAR}: {word}", flush=True)
    if options.json:
        options.json.write_text(json.dumps(results, indent=2))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
