"""OpenKBP patients, CSV to memory: voxloom's compact form beside pandas into the dense arrays of the challenge's loader.

    python bench/openkbp_peers.py FOLDER_OF_PATIENTS [--program build/voxloom] [--rounds 15] [--json FILE]

One core, in CPU time of the one thread; the page cache is warm. Bars: 3.5 ms a patient (median over patients), and all
patients on two threads within a second by the clock.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import time

import numpy
import pandas

import pairs

MS_A_PATIENT, ALL_MS = 3.5, 1000.0
REPOSITORY = pathlib.Path(__file__).resolve().parent.parent
ROIS = ["Brainstem", "SpinalCord", "RightParotid", "LeftParotid", "Esophagus", "Larynx", "Mandible", "PTV56", "PTV63", "PTV70"]


def by_voxloom(program, folders, threads):
    output = subprocess.run([program, "bench", "openkbp", *folders, "--threads", str(threads), "--repeats", "3", "--json"],
                            check=True, capture_output=True, text=True).stdout
    result = json.loads(output)[0]
    return result["cpu_ms"] if threads == 1 else result["median_ms"]


def by_pandas(folder):
    start = time.thread_time()
    shape = (128, 128, 128)
    for name in ("ct", "dose", "possible_dose_mask"):
        table = pandas.read_csv(folder / f"{name}.csv", index_col=0)
        dense = numpy.zeros(shape)
        numpy.put(dense, table.index, 1 if table["data"].isnull().all() else table["data"])
    masks = numpy.zeros((*shape, len(ROIS)))
    for number, roi in enumerate(ROIS):
        if (folder / f"{roi}.csv").exists():
            numpy.put(masks, len(ROIS) * pandas.read_csv(folder / f"{roi}.csv", index_col=0).index.to_numpy() + number, 1)
    return 1e3 * (time.thread_time() - start)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--program", default=REPOSITORY / "build" / "voxloom")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    folders = sorted(path for path in options.folder.iterdir() if (path / "ct.csv").exists())
    ours = {folder: by_voxloom(options.program, [folder], 1) for folder in folders}
    middle = sorted(folders, key=ours.get)[len(folders) // 2]
    costs = pairs.interleave({"voxloom": lambda: by_voxloom(options.program, [middle], 1),
                              "pandas": lambda: by_pandas(middle)}, options.rounds)
    result = pairs.compare(costs, "voxloom", "pandas")
    result |= {"median_ms": statistics.median(ours.values()), "slowest_ms": max(ours.values()), "patients": len(folders),
               "all_on_two_threads_ms": by_voxloom(options.program, folders, 2)}
    good = result["median_ms"] <= MS_A_PATIENT and result["all_on_two_threads_ms"] <= ALL_MS
    print(f"{len(folders)} patients: median {result['median_ms']:.2f} ms, slowest {result['slowest_ms']:.2f} ms; "
          f"all on two threads {result['all_on_two_threads_ms']:.0f} ms; {middle.name}: {result['ours']:.2f} ms, "
          f"pandas {result['peer']:.0f} ms, ratio {result['ratio']:.1f} [{result['low']:.1f}, {result['high']:.1f}]; "
          f"bars {MS_A_PATIENT} ms, {ALL_MS:.0f} ms: {'hold' if good else 'FAIL'}")
    if options.json:
        options.json.write_text(json.dumps(result, indent=2))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
