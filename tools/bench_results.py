"""Rows of bench/results/*.csv: which value of a row counts, how sure it is, and which way is better."""
import csv
import io
import pathlib
import subprocess

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent
RESULTS = "bench/results"
SCORES = "recipes.csv"  # of tools/recipe_scores.py: no speeds
COLUMNS = ["benchmark", "case", "ours", "peer", "ratio", "low", "high", "pairs", "bar", "verdict", "commit", "date",
           "machine"]

GPU_COLUMNS = ["workload", "voxloom_ms", "peer_ms", "ratio", "voxloom_gib", "peer_gib", "commit", "date"]
OTHER_TABLES = {SCORES, "headlines.csv", "pipeline.csv", "loss_curves.csv", "tune_grid.csv"}  # nothing that is divided by a peer


def number(text):
    try:
        return float(text)
    except (TypeError, ValueError):
        return None


class Row:
    """One measurement. `value`, `low` and `high` are speeds relative to something: higher is always better."""

    def __init__(self, fields):
        self.fields = fields
        self.key = (fields["benchmark"], fields["case"])
        ours, ratio, low, high = (number(fields[name]) for name in ("ours", "ratio", "low", "high"))
        self.against_peer = ratio is not None
        case = fields["case"]
        cost = "ratio of costs" in case if self.against_peer else "/s" not in case
        value = ratio if self.against_peer else ours
        if low is None or high is None:
            low = high = None
        if cost and value:  # less is better: turn it round
            value, low, high = 1 / value, high and 1 / high, low and 1 / low
        self.value, self.low, self.high = value, low, high

    @property
    def machine(self):
        return self.fields["machine"]


def of_gpu(fields):
    """A row of bench/gpu_side_by_side in the columns of the others."""
    return dict.fromkeys(COLUMNS, "") | {
        "benchmark": "gpu_side_by_side", "case": f"a step of {fields['workload']}, torch.compile (ms; ratio of costs)",
        "ours": fields["voxloom_ms"], "peer": fields["peer_ms"], "ratio": fields["ratio"],
        "commit": fields["commit"], "date": fields["date"], "machine": "one GPU"}


def parse(text, place):
    reader = csv.DictReader(io.StringIO(text))
    if reader.fieldnames == GPU_COLUMNS:
        return [Row(of_gpu(fields)) for fields in reader]
    if reader.fieldnames != COLUMNS:
        raise SystemExit(f"{place}: its columns are {reader.fieldnames}, expected {COLUMNS}")
    rows = []
    for line, fields in enumerate(reader, 2):
        if None in fields or None in fields.values():
            raise SystemExit(f"{place}:{line}: {'more' if None in fields else 'fewer'} than {len(COLUMNS)} fields")
        rows.append(Row(fields))
    return rows


def git(*arguments):
    return subprocess.run(["git", "-C", str(REPOSITORY), *arguments], capture_output=True, text=True)


def texts_of(source):
    """{place: text} of a file, a folder, or a revision of this repository."""
    path = pathlib.Path(source)
    if path.is_file():
        return {str(path): path.read_text()}
    if path.is_dir():
        found = {str(file): file.read_text() for file in sorted(path.glob("*.csv")) if file.name not in OTHER_TABLES}
        if not found:
            raise SystemExit(f"{source}: no .csv file in this folder")
        return found
    listed = git("ls-tree", "--name-only", source, f"{RESULTS}/")
    if listed.returncode != 0:
        raise SystemExit(f"{source}: neither a file, nor a folder, nor a revision of this repository")
    names = [name for name in listed.stdout.split("\n")
             if name.endswith(".csv") and pathlib.PurePath(name).name not in OTHER_TABLES]
    if not names:
        raise SystemExit(f"{source}: this revision has no {RESULTS}/*.csv")
    return {f"{source}:{name}": git("show", f"{source}:{name}").stdout for name in names}


def read(source):
    """{key: row}. Results are appended to: the last row of a key is the newest."""
    return {row.key: row for place, text in texts_of(source).items() for row in parse(text, place)}
