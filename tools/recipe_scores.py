#!/usr/bin/env python3
"""Scores of the recipes on real data.

    tools/recipe_scores.py measure openkbp_dose/best --data provided-data --output scores.json [key=value ...]
    tools/recipe_scores.py measure openkbp_dose/inner ...   the same with folds of its training patients, for choices
    tools/recipe_scores.py record scores.json ...   rows into bench/results/recipes.csv, tables into the READMEs
    tools/recipe_scores.py record --check           exit 1 where a table is stale; changes nothing

A folder with an experiments.md has there what a user of its recipes does not look for: variants, and folds for choices.

`measure` trains the recipe once for each seed or fold, predicts with the average of the last weights (nothing is
selected), evaluates, and writes what came out after each of them. In a measurement for choices, the options given are a
variant with a line of its own. It needs nothing but Python and the program
(`--program`, the environment variable VOXLOOM, or build/voxloom), and NumPy for the threshold beside the scrolls.
"""
import argparse
import concurrent.futures
import csv
import datetime
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import time

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent
RESULTS = REPOSITORY / "bench" / "results" / "recipes.csv"
COLUMNS = ["recipe", "case", "run", "score", "value", "steps", "training_s", "options", "machine", "commit", "date"]
EXPERIMENTS = "experiments.md"
BEGIN, END = "<!-- scores: tools/recipe_scores.py writes these lines -->", "<!-- end of scores -->"

SEEDS = [("", f"seed {seed}", [f"training.seed={seed}"]) for seed in range(3)]
FOLDS = [("", f"fold {fold}", [f"training.fold={fold}"]) for fold in range(5)]
LENGTHS = [*FOLDS, *((f"`training.max_epochs={epochs}`", run, [*chosen, f"training.max_epochs={epochs}"])
                     for epochs in (5, 20, 100) for _, run, chosen in FOLDS)]  # shorter, longer
SURFACE = {"score": "score", "topo": "topo", "surface_dice": "surface_dice", "voi": "voi"}
BASE_TERMS = ["{name: bce}", "{name: dice}"]
TOPOLOGY_TERMS = {
    "cldice": "{name: cldice, iterations: 3, deep_supervision: false}",
    "skeleton_recall": "{name: skeleton_recall, deep_supervision: false}",
    "morph_skeleton": "{name: morph_skeleton, weight: 0.2, iterations: 3, deep_supervision: false}",
    "surface_distance": "{name: surface_distance, weight: 0.2, tau: 2, deep_supervision: false}",
    # A sum over some hundred features, where the others are means: hence the weight.
    "topology": "{name: topology, weight: 0.0005, dimensions: [0, 2], every: 16, start_step: 300, deep_supervision: false}",
}
PLAIN_TERMS, THRESHOLD = "bce + dice", "best global threshold"


def with_terms():
    """Every topology term added to the same two, each with three seeds; and what a threshold of the image reaches."""
    cases = {PLAIN_TERMS: BASE_TERMS, **{f"+ {name}": [*BASE_TERMS, term] for name, term in TOPOLOGY_TERMS.items()}}
    trained = [(case, f"seed {seed}", [f"training.seed={seed}", f"loss.terms=[{', '.join(terms)}]"])
               for seed in range(3) for case, terms in cases.items()]
    return [*trained, (THRESHOLD, "", None)]


def each_scroll_recipe():
    """2,000 steps of each, in which what starts late starts half-way."""
    text = re.sub(r"\s+", " ", (REPOSITORY / "recipes" / "scroll_surface" / "persistence.yaml").read_text())
    terms = re.findall(r"- (\{[^}]*\})", text.replace("start_step: 20000", "start_step: 1000"))
    short = ["training.max_epochs=4", "training.iterations_per_epoch=500"]
    others = {"persistence": [f"loss.terms=[{', '.join(terms)}]"], "nnunet": ["training.warmup_steps=0"]}
    return [(f"{name}.yaml", "seed 0", [*short, "training.warmup_steps=100", *others.get(name, [])])
            for name in ("train", "small", "large", "nnunet", "persistence")]


class Measurement:
    """One recipe: what it is run with, and how its predictions are scored. `chooses_for` names the recipe of a
    measurement by which its settings are chosen, on data that do not score it; `root` makes the folder it trains on."""

    def __init__(self, runs, split, score, options=(), chooses_for=None, root=lambda data, folder: data):
        self.runs, self.split, self.score, self.options, self.root = runs, split, score, list(options), root
        self.chooses_for = chooses_for


def score_dose(program, predictions, data):
    return dose_scores(evaluated(program, "dose", predictions, data / "validation-pats"))


def score_dose_inside(program, predictions, data):
    return dose_scores(evaluated(program, "dose", predictions, data / "train-pats", "--subset"))


def dose_scores(mean):
    return {"dose score (Gy)": mean["dose_score"], "DVH score (Gy)": mean["dvh_score"]}


def score_hippocampus(program, predictions, data):
    mean = evaluated(program, "segmentation", predictions, data / "labels", "--subset")
    return {"Dice": mean["dice"], "Dice of 1": mean["classes"]["1"]["dice"], "Dice of 2": mean["classes"]["2"]["dice"]}


def score_mitochondria(program, predictions, data):
    prediction, objects = predictions / "vnc_test.tif", predictions / "objects.tif"
    foreground = evaluated(program, "segmentation", prediction, f"{data}/vnc_test.h5:mito")
    called(program, "convert", prediction, objects, "--postprocess",
           "[{name: remove_small, min_voxels: 100}, {name: watershed}]")
    apart = evaluated(program, "instances", objects, f"{data}/vnc_test.h5:objects")
    return {"Jaccard": foreground["iou"], "Dice": foreground["dice"],
            **{name: apart[name] for name in ("ap50", "pq", "voi_split", "voi_merge")}}


def score_surface(program, predictions, data):
    mean = evaluated(program, "surface", predictions, data / "train_labels", "--ignore-label", "2", "--subset")
    return {shown: mean[name] for name, shown in SURFACE.items()}


def threshold_scrolls(program, data, held_out, folder):
    """Masks of the scrolls by the one grey value that gives the best Dice over all of them."""
    import numpy as np
    folder.mkdir(parents=True)
    counts, images = np.zeros((3, 256), np.int64), {}
    for case in held_out:
        for kind in ("images", "labels"):
            called(program, "convert", data / f"train_{kind}" / f"{case}.tif", folder.parent / f"{kind}_{case}.npy")
        images[case], label = (np.load(folder.parent / f"{kind}_{case}.npy") for kind in ("images", "labels"))
        counts += np.bincount(label.ravel() * np.int64(256) + images[case].ravel(), minlength=768).reshape(3, 256)
    above = counts[:, ::-1].cumsum(1)[:, ::-1]
    level = int((2 * above[1] / (above[1] + above[0] + counts[1].sum())).argmax())
    for case, image in images.items():
        np.save(folder / f"{case}.npy", (image >= level).astype(np.uint8))


def training_patients(data, folder):
    """A folder that has the training patients alone, for recipes that take patients from all folders."""
    link = folder / "training" / "train-pats"
    link.parent.mkdir(parents=True, exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to((data / "train-pats").resolve())
    return link.parent


NO_VALIDATION = "validation.every=0"
MEASUREMENTS = {
    "openkbp_dose/best": Measurement(SEEDS, "validation", score_dose),
    "openkbp_dose/reference": Measurement(SEEDS, "validation", score_dose, [NO_VALIDATION]),
    "openkbp_dose/inner": Measurement(
        # Each fold has a seed of its own: one lucky draw of the first weights must not speak for all.
        [("", run, [*chosen, f"training.seed={fold}"]) for fold, (_, run, chosen) in enumerate(FOLDS)],
        "validation", score_dose_inside,
        ["data.split=kfold", "data.split_seed=0"], chooses_for="openkbp_dose/best", root=training_patients),
    "hippocampus/train": Measurement(LENGTHS, "validation", score_hippocampus, [NO_VALIDATION]),
    "hippocampus/nnunet": Measurement(FOLDS, "validation", score_hippocampus, [NO_VALIDATION]),
    "mitochondria/vnc": Measurement(SEEDS, "test", score_mitochondria, [NO_VALIDATION]),
    "scroll_surface/recipes": Measurement(each_scroll_recipe(), "validation", score_surface,
                                          [NO_VALIDATION, "training.fold=0"]),
    "scroll_surface/terms": Measurement(with_terms(), "validation", score_surface, [NO_VALIDATION]),
}
SIDE_BY_SIDE = {"scroll_surface/recipes"}  # whose cases are recipes of the folder


def called(program, *arguments):
    result = subprocess.run([str(program), *map(str, arguments)], capture_output=True, text=True)
    if result.returncode != 0:
        said = result.stderr[max(0, result.stderr.find("\nvoxloom: ")):][:2000].strip()
        raise SystemExit(f"`voxloom {' '.join(map(str, arguments))}` ended with {result.returncode}:\n{said}")
    return result.stdout


def evaluated(program, task, prediction, reference, *more):
    text = called(program, "evaluate", "--task", task, "--prediction", prediction, "--reference", reference, *more,
                  "--json")
    return json.loads(text)["mean"]


def machine():
    cpus = f"{len(os.sched_getaffinity(0))} CPUs"
    try:
        found = subprocess.run(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"], capture_output=True,
                               text=True, check=True).stdout.strip().splitlines()
    except (OSError, subprocess.CalledProcessError):
        found = []
    models = re.findall(r"^model name\s*: (.*)$", pathlib.Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return ", ".join([*(found or models)[:1], cpus])


def recipe_name(measured):
    return MEASUREMENTS[measured].chooses_for or measured if measured in MEASUREMENTS else measured


def recipe_file(name, case=""):
    file = f"{name.split('/')[0]}/{case}" if name in SIDE_BY_SIDE else f"{recipe_name(name)}.yaml"
    path = REPOSITORY / "recipes" / file
    if not path.exists() or name not in MEASUREMENTS:
        raise SystemExit(f"{name} is no recipe that is measured; known: {' '.join(MEASUREMENTS)}")
    return path


def train_and_score(arguments, measurement, chosen, folder):
    path = recipe_file(arguments.recipe, chosen[0])
    started = time.monotonic()
    called(arguments.program, "train", path, f"data.root={arguments.root}", *measurement.options, *chosen[2],
           *arguments.options, "--run", folder)
    seconds = time.monotonic() - started
    predictions = folder / "predictions"
    called(arguments.program, "predict", folder / "checkpoints" / "last.safetensors", "--split", measurement.split,
           "--output", predictions)
    scores = measurement.score(arguments.program, predictions, arguments.data)
    status, record = (json.loads((folder / name).read_text()) for name in ("status.json", "run.json"))
    return entry_of(arguments, chosen, scores, status["step"], seconds, record["commit"])


def threshold_and_score(arguments, measurement, chosen, folder):
    recipe = recipe_file(arguments.recipe).read_text()
    held_out = re.search(r"^  validation: \[([^\]]*)\]", recipe, re.MULTILINE).group(1).split(", ")
    threshold_scrolls(arguments.program, arguments.data, held_out, folder / "predictions")
    scores = measurement.score(arguments.program, folder / "predictions", arguments.data)
    commit = subprocess.run(["git", "-C", REPOSITORY, "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    return entry_of(arguments, chosen, scores, 0, 0, commit.stdout.strip())


def entry_of(arguments, chosen, scores, steps, seconds, commit):
    case, options = chosen[0], " ".join(arguments.options)
    if MEASUREMENTS[arguments.recipe].chooses_for:
        case, options = f"`{options}`" if options else "as it is", ""
    return {"recipe": arguments.recipe, "case": case, "run": chosen[1], "scores": scores, "steps": steps,
            "training_s": "" if arguments.shared else round(seconds, 1), "options": options, "machine": machine(),
            "commit": arguments.commit or commit, "date": datetime.date.today().isoformat()}


def measure(arguments):
    measurement, done = MEASUREMENTS[arguments.recipe], {}
    runs = measurement.runs[:arguments.runs] if arguments.runs else measurement.runs
    arguments.shared |= arguments.jobs > 1
    arguments.root = measurement.root(arguments.data, arguments.folder)

    def one(number):
        chosen = runs[number]
        folder = arguments.folder / f"{arguments.recipe.replace('/', '-')}-{number}"
        scored = train_and_score if chosen[2] is not None else threshold_and_score
        return scored(arguments, measurement, chosen, folder)

    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        started = {pool.submit(one, number): number for number in range(arguments.first, len(runs))}
        for finished in concurrent.futures.as_completed(started):
            done[started[finished]] = finished.result()
            arguments.output.write_text(json.dumps([done[number] for number in sorted(done)], indent=1))
            print(json.dumps(done[started[finished]]), flush=True)


def read_rows():
    if not RESULTS.exists():
        return []
    with RESULTS.open(newline="") as file:
        return list(csv.DictReader(file))


def append_rows(files):
    rows = read_rows()
    for path in files:
        for entry in json.loads(path.read_text()):
            shared = {name: str(entry[name]) for name in COLUMNS if name in entry}
            rows += [{**shared, "score": name, "value": f"{value:.6g}"} for name, value in entry["scores"].items()]
    with RESULTS.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def newest(rows):
    """The last row of each run and score, on the machine and with the options that its case was last measured with."""
    wanted = {row["case"]: (row["machine"], row["options"]) for row in rows}
    kept = {(row["case"], row["run"], row["score"]): row for row in rows
            if (row["machine"], row["options"]) == wanted[row["case"]]}
    return list(kept.values())


def spread(values):
    """Mean, and where there are several the least and the greatest."""
    mean = f"{statistics.mean(values):.3f}"
    return mean if len(values) == 1 else f"{mean} ({min(values):.3f} to {max(values):.3f})"


def beside_plain(rows, score):
    """Case -> whether it beats the plain terms by more than seeds differ. Higher scores are better."""
    values = {}
    for row in rows:
        if row["score"] == score and row["case"] != THRESHOLD:
            values.setdefault(row["case"], []).append(float(row["value"]))
    plain = values.pop(PLAIN_TERMS, [])
    told = {}
    for case, own in values.items():
        if len(plain) < 2 or len(own) < 2:
            continue
        gain = statistics.mean(own) - statistics.mean(plain)
        seeds = max(max(these) - min(these) for these in (plain, own))
        found = "no" if abs(gain) <= seeds else "yes" if gain > 0 else "no, worse"
        told[case] = f"{found}: {gain:+.3f}, seeds differ by {seeds:.3f}"
    return told


def line_of(name, rows, scores):
    cells = [spread([float(row["value"]) for row in rows if row["score"] == score]) for score in scores]
    seconds = {(row["case"], row["run"]): float(row["training_s"]) for row in rows if row["training_s"]}
    steps = sorted({int(row["steps"]) for row in rows})
    return (f"| {name} | {' | '.join(cells)} | {', '.join(f'{count:,}' for count in steps)} | "
            f"{f'{statistics.median(seconds.values()):.0f}' if seconds else ''} |")


def table(recipe, rows):
    scores = list(dict.fromkeys(row["score"] for row in rows))
    verdicts = beside_plain(rows, scores[0])
    inside = ", folds of its training data" if recipe_name(recipe) != recipe else ""
    first = "recipe" if recipe in SIDE_BY_SIDE else f"`{recipe_name(recipe).split('/')[1]}.yaml`{inside}"
    lines = [f"| {first} | {' | '.join(scores)} | steps | training (s) |",
             "|---" * (len(scores) + 3) + "|"]
    if verdicts:
        lines = [lines[0] + f" beats {PLAIN_TERMS} in `{scores[0]}`? |", lines[1] + "---|"]
    for case in dict.fromkeys(row["case"] for row in rows):
        of_case = [row for row in rows if row["case"] == case]
        runs = list(dict.fromkeys(row["run"] for row in of_case))
        if not case:
            lines += [line_of(run, [row for row in of_case if row["run"] == run], scores) for run in runs]
        if case or len(runs) > 1:
            name = f"{case}, {f'{len(runs)} runs' if len(runs) > 1 else runs[0]}".rstrip(", ")
            line = line_of(name if case else f"mean of {len(runs)} (least to greatest)", of_case, scores)
            lines.append(line + (f" {verdicts.get(case, '')} |" if verdicts else ""))
    measured = ". ".join(where_measured([row for row in rows if row["machine"] == machine])
                         for machine in dict.fromkeys(row["machine"] for row in rows))
    untimed = "" if all(row["training_s"] for row in rows) else "; runs without shared the machine"
    note = (f"{measured}. Seconds are of the whole command `voxloom train`, reading included; of several runs the "
            f"median{untimed}.")
    return "\n".join([*lines, "", note])


def where_measured(rows):
    """Of rows of one machine: it, the commits and the options."""
    given = [f"`{options}`" for options in dict.fromkeys(row["options"] for row in rows) if options]
    options = f" with {' and '.join(given)}" if given else ""
    commits = " and ".join(dict.fromkeys(f"{row['commit']}, {row['date']}" for row in rows))
    return f"{rows[0]['machine']}; commit {commits}{options}"


def is_experiment(row):
    return bool(row["case"]) or recipe_name(row["recipe"]) != row["recipe"]


def tables(page, rows):
    """What belongs on a page of a folder that has one page, or one for users and one for experiments."""
    own = [row for row in rows if row["recipe"].startswith(f"{page.parent.name}/")]
    if (page.parent / EXPERIMENTS).exists():
        own = [row for row in own if is_experiment(row) == (page.name == EXPERIMENTS)]
    named = dict.fromkeys(row["recipe"] for row in own)
    return "\n\n".join(table(name, newest([row for row in own if row["recipe"] == name])) for name in named)


def renewed(text, place, lines):
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        raise SystemExit(f"{place} must have one line {BEGIN} and one line {END}")
    before, rest = text.split(BEGIN)
    return f"{before}{BEGIN}\n\n{lines or 'Not measured yet.'}\n\n{END}{rest.split(END)[1]}"


def record(arguments):
    if arguments.files:
        append_rows(arguments.files)
    stale, rows = [], read_rows()
    folders = REPOSITORY / "recipes"
    for page in sorted([*folders.glob("*/README.md"), *folders.glob(f"*/{EXPERIMENTS}")]):
        old = page.read_text()
        new = renewed(old, page, tables(page, rows))
        if new == old:
            continue
        stale.append(page)
        if not arguments.check:
            page.write_text(new)
    for page in stale if arguments.check else []:
        print(f"{page}: its scores are not those of {RESULTS}; run tools/recipe_scores.py record")
    return 1 if arguments.check and stale else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("measure", epilog="key=value ...: options of every run")
    one.add_argument("recipe", choices=list(MEASUREMENTS))
    one.add_argument("--data", type=lambda text: pathlib.Path(text).resolve(), required=True)
    one.add_argument("--output", type=pathlib.Path, required=True, help="JSON, written anew after each run")
    one.add_argument("--folder", type=pathlib.Path, default=REPOSITORY / "runs", help="gets the runs")
    one.add_argument("--program", default=os.environ.get("VOXLOOM", REPOSITORY / "build" / "voxloom"))
    one.add_argument("--commit", default="", help="of the sources, where the program was built of later ones than it says")
    one.add_argument("--first", type=int, default=0, help="number of the first run")
    one.add_argument("--runs", type=int, default=0, help="stop before this number; 0 is all")
    one.add_argument("--jobs", type=int, default=1, help="runs at a time; their time is not recorded where it is above 1")
    one.add_argument("--shared", action="store_true", help="other programs run beside it: its time is not recorded")
    two = commands.add_parser("record")
    two.add_argument("files", nargs="*", type=pathlib.Path, help="what measure wrote")
    two.add_argument("--check", action="store_true")
    arguments, arguments.options = parser.parse_known_args()
    for word in arguments.options:
        if word.startswith("-") or "=" not in word or arguments.command != "measure":
            parser.error(f"unknown argument: {word}")
    return measure(arguments) if arguments.command == "measure" else record(arguments)


if __name__ == "__main__":
    sys.exit(main())
