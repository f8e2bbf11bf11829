#!/usr/bin/env python3
"""The tables of docs/gpu-guide.md: every recipe on every GPU that `voxloom profile --on` knows, and how far the model is
from the steps that were measured (bench/workloads/measured.csv).

    tools/gpu_guide.py                       rewrites the lines between the markers
    tools/gpu_guide.py --check               exit 1 where they are stale; changes nothing
    tools/gpu_guide.py --check --only PART   the same for recipes whose name has PART: quick enough for a test
"""
import argparse
import csv
import json
import os
import pathlib
import subprocess
import sys

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent
GUIDE = REPOSITORY / "docs" / "gpu-guide.md"
MEASURED = REPOSITORY / "bench" / "workloads" / "measured.csv"
BEGIN, END = "<!-- {}: tools/gpu_guide.py writes these lines -->", "<!-- end of {} -->"


def predicted(program, recipe, gpu, options=()):
    result = subprocess.run([program, "profile", str(recipe), "--on", gpu, "--json", *options],
                            capture_output=True, text=True)
    if result.returncode != 0:
        raise SystemExit(f"{recipe}: {result.stderr.strip()}")
    return json.loads(result.stdout)


def milliseconds(value):
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}"


def recipe_row(program, recipe):
    name = recipe.relative_to(REPOSITORY / "recipes").with_suffix("")
    found = predicted(program, recipe, "all")
    batch = f"{found['batch']}" + (f" x {found['accumulation']}" if found["accumulation"] > 1 else "")
    cells = []
    for one in found["gpus"]:
        fits = "" if one["fits"] else "does not fit; "
        cells.append(f"{fits}{milliseconds(one['step_ms'])} ms, {one['largest_batch']}")
    return f"| `{name}` | {batch} | {' | '.join(cells)} |"


def recipe_head(program, recipe):
    titles = [one["title"] for one in predicted(program, recipe, "all")["gpus"]]
    return [f"| recipe | batch | {' | '.join(titles)} |", "|---|---|" + "---|" * len(titles)]


def recipes(only):
    return [recipe for recipe in sorted((REPOSITORY / "recipes").glob("*/*.yaml")) if only in str(recipe)]


def calibration(program, only):
    lines = ["| recipe | measured on an H200 | modelled | difference |", "|---|---|---|---|"]
    with MEASURED.open() as file:
        for row in csv.DictReader(file):
            options = row["options"].split()
            if only not in row["recipe"]:
                continue
            modelled = predicted(program, REPOSITORY / row["recipe"], row["gpu"], options)["step_ms"]
            measured = float(row["step_ms"])
            lines.append(f"| `{' '.join([row['recipe'], *options])}` | {milliseconds(measured)} ms | "
                         f"{milliseconds(modelled)} ms | {100 * (modelled / measured - 1):+.0f} % |")
    return lines


def between(text, name):
    begin, end = BEGIN.format(name), END.format(name)
    if text.count(begin) != 1 or text.count(end) != 1:
        raise SystemExit(f"{GUIDE} must have one line {begin} and one line {end}")
    before, rest = text.split(begin)
    inside, after = rest.split(end)
    return before + begin, inside, end + after


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="exit 1 where the guide is stale; change nothing")
    parser.add_argument("--only", default="", help="with --check: recipes whose name has this in it")
    parser.add_argument("--program", default=os.environ.get("VOXLOOM", str(REPOSITORY / "build" / "voxloom")))
    arguments = parser.parse_args()
    if arguments.only and not arguments.check:
        parser.error("--only is for --check: the tables are written whole")
    old = GUIDE.read_text()
    chosen = recipes(arguments.only)
    if not pathlib.Path(arguments.program).exists():
        sys.exit(f"{arguments.program} does not exist; run make build first, or name the program with --program")
    rows = [recipe_row(arguments.program, recipe) for recipe in chosen]
    tables = {"recipes": rows, "calibration": calibration(arguments.program, arguments.only)}
    if arguments.only:
        stale = [line for table in tables.values() for line in table if line not in old]
    else:
        tables["recipes"] = recipe_head(arguments.program, chosen[0]) + rows
        new = old
        for name, lines in tables.items():
            before, _, after = between(new, name)
            new = before + "\n\n" + "\n".join(lines) + "\n\n" + after
        stale = [] if new == old else ["the tables"]
    if stale and arguments.check:
        print(f"{GUIDE} is stale (run tools/gpu_guide.py): " + "; ".join(stale))
        return 1
    if stale:
        GUIDE.write_text(new)
    return 0


if __name__ == "__main__":
    sys.exit(main())
