"""A training small enough for a test: a few thousand weights, patches of 16^3."""
import json

import numpy as np
from safetensors import safe_open

from recipes import write_volumes

RECIPE = """
data:
  root: {root}
  cache_dir: {root}/cache
  images: ["images/*.npy"]
  label: "labels/{{id}}.npy"
  ignore_label: 2
  split: explicit
  train: [case_000, case_001]
  validation: [case_002]
  patch_size: [16, 16, 16]
  batch_size: 2
  preprocess: [{{name: zscore}}]
augmentation:
  flip: {{enabled: true}}
  noise: {{enabled: true}}
model: {{architecture: unet, filters: [4, 8]}}
training: {{max_epochs: 3, iterations_per_epoch: 10, lr: 0.01, warmup_steps: 3}}
validation: {{patches: 2}}
monitor: {{log_every: 5, progress: lines}}
"""


def write_training(folder, source, extra=""):
    write_volumes(folder, 3, (24, 26, 28), source)
    recipe = folder / "recipe.yaml"
    recipe.write_text(RECIPE.format(root=folder) + extra)
    return recipe


def checkpoint(run, name="last"):
    return run / "checkpoints" / f"{name}.safetensors"


def tensors(path):
    with safe_open(path, "np") as file:
        return {name: file.get_tensor(name) for name in file.keys() if name != "voxloom.crc32c"}


def metadata(path):
    with safe_open(path, "np") as file:
        return file.metadata()


def record(run):
    return json.loads((run / "run.json").read_text())


def rows(run, split="train"):
    lines = (run / "metrics.csv").read_text().splitlines()
    columns = lines[0].split(",")
    table = [dict(zip(columns, line.split(","))) for line in lines[1:]]
    return [row for row in table if row["split"] == split]


def assert_same_weights(first, second):
    """Bit for bit: equality of arrays would take two NaNs for different and two zeros for equal."""
    a, b = tensors(first), tensors(second)
    assert a.keys() == b.keys()
    for name in a:
        assert a[name].tobytes() == b[name].tobytes(), name


def dice(prediction, reference, ignore=2):
    counts = reference != ignore
    p, r = (prediction > 0)[counts], (reference == 1)[counts]
    return 2 * np.sum(p & r) / (np.sum(p) + np.sum(r))
