#!/usr/bin/env python3
"""The README's numbers, from bench/results: rewrites the lines between its two markers, or with --check says whether
they are stale. Only ratios to a peer from at least 15 pairs taken one after the other are shown, the newest of each
kind, those that miss their bar too."""
import argparse
import pathlib
import sys

import bench_results

LEAST_PAIRS = 15
NO_PEER = {"store_ratio"}  # compares two ways of our own
IN_PAIRS = {"gpu_side_by_side"}  # keeps no interval in its table; takes 15 pairs or writes no row
BEGIN, END = "<!-- numbers: tools/readme_numbers.py writes these lines -->", "<!-- end of numbers -->"


def table(rows):
    lines = ["| measured by | what | Voxloom | peer | times as fast (95 %) | machine |", "|---|---|---|---|---|---|"]
    for row in rows:
        fields = row.fields
        in_pairs = fields["benchmark"] in IN_PAIRS
        if not row.against_peer or not in_pairs and (row.low is None or float(fields["pairs"] or 0) < LEAST_PAIRS):
            continue
        if "load " in fields["case"] or fields["benchmark"] in NO_PEER:  # beside other work: a record, not a claim
            continue
        missed = ", misses its bar" if fields["verdict"] == "FAILS" else ""
        interval = f" ({row.low:.3g} to {row.high:.3g})" if row.low is not None else ""
        lines.append(f"| `bench/{fields['benchmark']}{'' if in_pairs else '.py'}` | {fields['case']} | {fields['ours']} | "
                     f"{fields['peer']} | {row.value:.3g}{interval}{missed} | {fields['machine']} |")
    return "\n".join(lines)


def renewed(readme, numbers):
    if readme.count(BEGIN) != 1 or readme.count(END) != 1:
        raise SystemExit(f"README.md must have one line {BEGIN} and one line {END}")
    before, rest = readme.split(BEGIN)
    return f"{before}{BEGIN}\n\n{numbers}\n\n{END}{rest.split(END)[1]}"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="exit 1 where the README is stale; change nothing")
    parser.add_argument("--readme", type=pathlib.Path, default=bench_results.REPOSITORY / "README.md")
    parser.add_argument("--results", default=str(bench_results.REPOSITORY / bench_results.RESULTS))
    arguments = parser.parse_args()
    old = arguments.readme.read_text()
    new = renewed(old, table(bench_results.read(arguments.results).values()))
    if old == new:
        return 0
    if arguments.check:
        print(f"{arguments.readme}: its numbers are not those of {arguments.results}; run tools/readme_numbers.py")
        return 1
    arguments.readme.write_text(new)
    return 0


if __name__ == "__main__":
    sys.exit(main())
