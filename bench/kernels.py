"""CPU kernels beside the libraries that others use, one core, 128^3, on the same arrays in one process.

    python bench/kernels.py [--build build] [--rounds 21] [--size 128] [--slow-peers] [--program build/voxloom] [--csv FILE]

Distance transform (edt), components (cc3d), thinning (scikit-image), persistence (gudhi, with --slow-peers: half a
minute a map), soft skeleton (MONAI on torch); with --program also the surface score of a 320^3 pair. Results are compared
before anything is timed. Times are processor time, so that neighbours on the machine count for little. `--csv` adds the
rows to a file of results.
"""
import argparse
import csv
import datetime
import math
import pathlib
import platform
import resource
import subprocess
import sys
import tempfile
import time

import cc3d
import edt
import numpy
import scipy.ndimage
import skimage.morphology

import kernel_library
import pairs

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent
COLUMNS = "benchmark,case,ours,peer,ratio,low,high,pairs,bar,verdict,commit,date,machine".split(",")


def make_masks(size, seed=1):
    source = numpy.random.default_rng(seed)
    smooth = scipy.ndimage.gaussian_filter(source.standard_normal((size, size, size), dtype=numpy.float32), 6)
    sheets = (numpy.abs(smooth) < numpy.quantile(numpy.abs(smooth), 0.1)).astype(numpy.uint8)
    noise = (source.random((size, size, size), dtype=numpy.float32) < 0.2).astype(numpy.uint8)
    return {"sheets": sheets, "complement": 1 - sheets, "noise": noise}


def noisy_probability(mask, seed=2):
    source = numpy.random.default_rng(seed)
    smooth = scipy.ndimage.gaussian_filter(mask.astype(numpy.float32), 1)
    return (1 / (1 + numpy.exp(3 - 8 * smooth - source.standard_normal(mask.shape)))).astype(numpy.float32)


def processor_ms(work):
    def run():
        start = time.process_time()
        work()
        return 1e3 * (time.process_time() - start)
    return run


class Table:
    """Rows of results; a bar is a ratio of speeds, or with `most_ms` a time."""

    def __init__(self, rounds):
        self.rounds, self.rows = rounds, []

    def compare(self, case, ours, peer, bar=None, rounds=None):
        costs = pairs.interleave({"ours": processor_ms(ours), "peer": processor_ms(peer)}, rounds or self.rounds,
                                 warmups=0 if rounds == 1 else 1)
        self.add(case, pairs.compare(costs, "ours", "peer"), bar)

    def add(self, case, result, bar):
        verdict = "" if bar is None else pairs.verdict(result, bar)
        self.rows.append({"benchmark": "kernels", "case": f"{case} (ms CPU)", "ours": f"{result['ours']:.2f}",
                          "peer": f"{result['peer']:.1f}", "ratio": f"{result['ratio']:.2f}", "low": f"{result['low']:.2f}",
                          "high": f"{result['high']:.2f}", "pairs": result["pairs"], "bar": bar or "", "verdict": verdict})
        self.show()

    def measure(self, case, ours, most_ms):
        costs = pairs.interleave({"ours": processor_ms(ours)}, self.rounds)["ours"]
        low, high = pairs.median_interval(costs)
        self.rows.append({"benchmark": "kernels", "case": f"{case} (ms CPU; low and high of ours)",
                          "ours": f"{numpy.median(costs):.1f}", "peer": "", "ratio": "", "low": f"{low:.1f}",
                          "high": f"{high:.1f}", "pairs": len(costs), "bar": f"<={most_ms}",
                          "verdict": "holds" if high <= most_ms else "FAILS"})
        self.show()

    def show(self):
        row = self.rows[-1]
        print(f"{row['case']:58} ours {row['ours']:>8}  peer {row['peer']:>8}  ratio {row['ratio']:>6} "
              f"[{row['low']}, {row['high']}] {row['bar']} {row['verdict']}", flush=True)


def compare_edt(table, kernels, masks):
    lows = []
    for name in ("sheets", "complement"):
        mask, out = masks[name], numpy.empty(masks[name].shape, numpy.float32)
        kernels.call("edt", out, mask)
        assert numpy.array_equal(out, edt.edtsq(mask, parallel=1)), "the distances differ"
        table.compare(f"edt of {name}, edt", lambda: kernels.call("edt", out, mask), lambda: edt.edtsq(mask, parallel=1))
        lows.append(float(table.rows[-1]["low"]))
    table.rows[-1]["bar"], table.rows[-1]["verdict"] = "2 (geometric mean of both)", "holds" if math.prod(lows) >= 4 else "FAILS"


def compare_components(table, kernels, masks):
    for name in ("sheets", "noise"):
        mask, out = masks[name], numpy.empty(masks[name].shape, numpy.uint32)
        for connectivity in (6, 18, 26):
            count = kernels.call("components", out, mask, connectivity)
            theirs = cc3d.connected_components(mask, connectivity=connectivity)
            joint = numpy.unique(theirs.astype(numpy.int64) << 32 | out)
            assert count == theirs.max() and len(joint) == count + 1, "components differ"
            table.compare(f"components {connectivity} of {name}, cc3d",
                          lambda: kernels.call("components", out, mask, connectivity),
                          lambda: cc3d.connected_components(mask, connectivity=connectivity), 1)


def compare_thinning(table, kernels, masks):
    mask, thin = masks["sheets"], skimage.morphology.skeletonize
    by_slices = lambda: numpy.stack([thin(slice_) for slice_ in mask])
    assert numpy.array_equal(kernels.thin(mask, 2), by_slices()) and numpy.array_equal(kernels.thin(mask, 3), thin(mask))
    table.compare("thinning of slices, scikit-image", lambda: kernels.thin(mask, 2), by_slices)
    table.compare("thinning in 3-D, scikit-image", lambda: kernels.thin(mask, 3), lambda: thin(mask), rounds=5)


def measure_persistence(table, kernels, masks, slow_peers):
    maps = {"a noisy map": (noisy_probability(masks["sheets"]), 450, 1000),
            "a mask": (masks["sheets"].astype(numpy.float32), 250, 500)}
    room = numpy.zeros((3 * masks["sheets"].size, 2), numpy.int64)
    for name, (values, most_ms, most_ms_of_tunnels) in maps.items():
        pairs_of = lambda dimension: kernels.call("persistence", room, values, dimension, 1, 0)
        table.measure(f"persistence 0 and 2 of {name}", lambda: (pairs_of(0), pairs_of(2)), most_ms)
        table.measure(f"persistence 1 of {name}", lambda: pairs_of(1), most_ms_of_tunnels)
        if slow_peers:
            import gudhi
            table.compare(f"persistence 0, 1 and 2 of {name}, gudhi", lambda: [pairs_of(k) for k in range(3)],
                          lambda: gudhi.CubicalComplex(vertices=-values).compute_persistence(), rounds=1)


def compare_soft_skeleton(table, kernels, masks, slow_peers):
    values = noisy_probability(masks["sheets"])
    weights = numpy.ones_like(values)
    both = lambda: (kernels.soft_skeleton(values, 10, False), kernels.soft_skeleton_backward(weights, values, 10, False))
    if not slow_peers:
        both()
        costs = pairs.interleave({"ours": processor_ms(both)}, 5)["ours"]
        print(f"soft skeleton, 10 iterations, both ways: {numpy.median(costs):.0f} ms CPU")
        return
    import torch
    from monai.losses.cldice import soft_skel
    torch.set_num_threads(1)

    def with_torch():
        tensor = torch.from_numpy(values)[None, None].requires_grad_()
        soft_skel(tensor, 10).sum().backward()
    table.compare("soft skeleton, 10 iterations, both ways, MONAI", both, with_torch, rounds=3)


def run_watched(command):
    """Its most memory in GiB. What the kernel reports at the end would hold that of this process, which it began as."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    peak_kib = 0
    while process.poll() is None:
        try:
            status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
            peak_kib = max([peak_kib, *(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))])
        except OSError:
            pass
        time.sleep(0.01)
    if process.returncode != 0:
        sys.exit(f"{' '.join(map(str, command[:2]))} ended with {process.returncode}")
    return peak_kib / 2**20


def measure_surface_score(table, program, folder, size=320):
    """Wall clock of the whole program on two threads, and its memory."""
    source = numpy.random.default_rng(1)
    smooth = lambda sigma: scipy.ndimage.gaussian_filter(source.standard_normal((size, size, size), dtype=numpy.float32), sigma)
    field, shift = smooth(6), smooth(3)
    thick = numpy.quantile(numpy.abs(field), 0.1)
    numpy.save(folder / "g.npy", (numpy.abs(field) < thick).astype(numpy.uint8))
    numpy.save(folder / "p.npy", (numpy.abs(field + 0.25 * thick * shift / shift.std()) < thick).astype(numpy.uint8))
    start, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    gigabytes = run_watched([program, "evaluate", "--task", "surface", "--prediction", folder / "p.npy", "--reference",
                             folder / "g.npy"])
    seconds, usage = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = usage.ru_utime + usage.ru_stime - before.ru_utime - before.ru_stime
    table.rows.append({"benchmark": "kernels", "case": f"surface score of a 320^3 pair (s; {processor:.1f} s CPU, "
                       f"{gigabytes:.2f} GiB)", "ours": f"{seconds:.1f}", "peer": "", "ratio": "", "low": "", "high": "",
                       "pairs": 1, "bar": "<=45 s, 3 GB", "verdict": "holds" if seconds <= 45 and gigabytes <= 2.79 else "FAILS"})
    table.show()


def write_csv(path, rows):
    commit = subprocess.run(["git", "-C", str(REPOSITORY), "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    model = [line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")]
    common = {"commit": commit.stdout.strip(), "date": datetime.date.today().isoformat(),
              "machine": model[0] if model else platform.processor()}
    new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerows({**row, **common} for row in rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, default=REPOSITORY / "build")
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--slow-peers", action="store_true")
    parser.add_argument("--program", type=pathlib.Path)
    parser.add_argument("--csv", type=pathlib.Path)
    options = parser.parse_args()
    masks, table = make_masks(options.size), Table(options.rounds)
    with tempfile.TemporaryDirectory() as folder:
        kernels = kernel_library.Kernels(options.build, folder)
        compare_edt(table, kernels, masks)
        compare_components(table, kernels, masks)
        compare_thinning(table, kernels, masks)
        measure_persistence(table, kernels, masks, options.slow_peers)
        compare_soft_skeleton(table, kernels, masks, options.slow_peers)
        if options.program:
            measure_surface_score(table, options.program, pathlib.Path(folder))
    if options.csv:
        write_csv(options.csv, table.rows)
    failed = [row["case"] for row in table.rows if row["verdict"] == "FAILS"]
    print(f"bars: {'FAIL for ' + ', '.join(failed) if failed else 'hold'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
