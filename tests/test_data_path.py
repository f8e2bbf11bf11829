"""The data path from files to batches: what it promises about threads, steps and memory."""
import json
import subprocess
import time

import tifffile

from conftest import PROGRAM
from processes import runnable_threads
from recipes import write_recipe, write_volumes


def write_lzw(path, array):
    tifffile.imwrite(path, array, compression="lzw")


def bench(voxloom, *arguments):
    return json.loads(voxloom("bench", "data", *arguments, "--json").stdout)[0]


def test_the_hash_of_batches_does_not_depend_on_threads_or_start(voxloom, draw, tmp_path):
    write_volumes(tmp_path, 4, (30, 33, 36), draw)
    recipe = write_recipe(tmp_path, patch=(12, 14, 16))
    runs = {threads: bench(voxloom, recipe, "--batches", 200, "--warm-up", 0, "--threads", threads, "--hash")
            for threads in (1, 2, 7)}
    assert runs[1]["hash"] == runs[2]["hash"] == runs[7]["hash"]
    assert len(set(runs[1]["batch_hashes"])) == 200
    late = bench(voxloom, recipe, "--batches", 100, "--warm-up", 0, "--threads", 2, "--first-step", 100, "--hash")
    assert late["batch_hashes"] == runs[1]["batch_hashes"][100:]


def test_the_hash_is_the_same_when_the_data_do_not_fit(voxloom, draw, tmp_path):
    write_volumes(tmp_path, 6, (40, 44, 48), draw, write=write_lzw, suffix="tif")
    recipe = write_recipe(tmp_path, patch=(12, 14, 16), suffix="tif")
    fits = bench(voxloom, recipe, "--batches", 30, "--hash")
    tight = bench(voxloom, recipe, "data.cache_gb=0.0004", "--batches", 30, "--hash")
    assert fits["hash"] == tight["hash"]
    assert tight["store"]["resident_peak_bytes"] <= 0.0004 * 2**30


def test_threads_stay_within_what_was_asked_for(draw, tmp_path):
    write_volumes(tmp_path, 4, (40, 40, 40), draw)
    recipe = write_recipe(tmp_path, patch=(32, 32, 32))
    process = subprocess.Popen([PROGRAM, "bench", "data", recipe, "--threads", "2", "--batches", "600"],
                               stdout=subprocess.DEVNULL)
    most, samples = 0, 0
    while process.poll() is None:
        most = max(most, runnable_threads(process)[0])
        samples += 1
        time.sleep(0.005)
    assert process.returncode == 0 and samples > 10
    assert most <= 3  # two workers, and the consumer that copies nothing


def test_memory_stays_within_the_cache_when_data_are_larger(voxloom, draw, tmp_path):
    write_volumes(tmp_path, 12, (96, 96, 96), draw, write=write_lzw, suffix="tif")  # 20 MiB decoded
    recipe = write_recipe(tmp_path, patch=(24, 24, 24), suffix="tif")
    small = bench(voxloom, recipe, "data.cache_gb=0.008", "--batches", 300)
    assert small["store"]["resident_peak_bytes"] <= 0.008 * 2**30
    assert small["rss_end_gib"] <= small["rss_quarter_gib"] + 0.05
