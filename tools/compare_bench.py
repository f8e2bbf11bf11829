#!/usr/bin/env python3
"""What changed between two versions of bench/results: two files, two folders, or two revisions.

    tools/compare_bench.py HEAD~10 HEAD
    tools/compare_bench.py HEAD bench/results --fail-above 5

A row changed where its two intervals do not touch; where a row has no interval, where it differs by more than
--tolerance percent. Ratios to a peer are compared across machines; plain times only on one.
"""
import argparse
import sys

import bench_results


def bounds(row, tolerance):
    share = tolerance / 100
    low = row.low if row.low is not None else row.value * (1 - share)
    high = row.high if row.high is not None else row.value * (1 + share)
    return low, high


def judge(old, new, tolerance):
    """(verdict, how many times as fast as before)"""
    if old.value is None or new.value is None or not old.value:
        return "no number", None
    if not new.against_peer and old.machine != new.machine:
        return "another machine", None
    factor = new.value / old.value
    (old_low, old_high), (new_low, new_high) = bounds(old, tolerance), bounds(new, tolerance)
    if new_low > old_high:
        return "faster", factor
    if new_high < old_low:
        return "SLOWER", factor
    return "same", factor


def compare(old, new, tolerance):
    for key in old.keys() | new.keys():
        if key not in old:
            yield key, "new", None
        elif key not in new:
            yield key, "gone", None
        else:
            yield (key, *judge(old[key], new[key], tolerance))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", help="file, folder or revision")
    parser.add_argument("new", nargs="?", default=str(bench_results.REPOSITORY / bench_results.RESULTS),
                        help="file, folder or revision; absent: bench/results as it lies here")
    parser.add_argument("--tolerance", type=float, default=10, help="percent, for rows without an interval")
    parser.add_argument("--fail-above", type=float, metavar="PERCENT",
                        help="exit 1 where a row is slower beyond its spread, and by more than this")
    parser.add_argument("--all", action="store_true", help="rows that did not change, too")
    arguments = parser.parse_args()
    results = sorted(compare(bench_results.read(arguments.old), bench_results.read(arguments.new),
                             arguments.tolerance))
    failed = 0
    for (benchmark, case), verdict, factor in results:
        if verdict == "SLOWER" and arguments.fail_above is not None and factor < 1 - arguments.fail_above / 100:
            failed += 1
        if verdict not in ("same", "no number") or arguments.all:
            speed = "" if factor is None else f"x {factor:.3f}"
            print(f"{verdict:16}{speed:9} {benchmark}: {case}")
    same = sum(verdict == "same" for _, verdict, _ in results)
    print(f"{len(results)} rows, {same} of them the same within their spread")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
