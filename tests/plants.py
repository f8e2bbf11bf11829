"""Recipes with one stage made slow, by configuration where configuration can: what `voxloom profile` must name."""
import json
import os

import numpy as np
import tifffile
import torch

from recipes import random_balls

CPUS = len(os.sched_getaffinity(0))


def write_cases(folder, source, count, size, compression=None):
    """Noise with a bright ball, which is the label."""
    generator = np.random.default_rng(source.randrange(2**32))
    for number, ball in random_balls(folder, count, size, generator, min(size) / 3):
        image = (generator.integers(0, 180, size) + 60 * ball).astype(np.uint8)
        for kind, volume in (("images", image), ("labels", ball.astype(np.uint8))):
            name = folder / kind / f"case_{number:03d}"
            if compression:
                tifffile.imwrite(f"{name}.tif", volume, compression=compression)
            else:
                np.save(f"{name}.npy", volume)


def write_recipe(folder, suffix="npy", **sections):
    recipe = {
        "data": {"root": str(folder), "cache_dir": str(folder / "cache"), "images": [f"images/*.{suffix}"],
                 "label": "labels/{id}." + suffix, "split": "none", "patch_size": [16, 16, 16], "batch_size": 2,
                 "num_workers": 1},
        "model": {"architecture": "unet", "filters": [2, 4]},
        "training": {"iterations_per_epoch": 1000, "lr": 0.001},
        "augmentation": {"flip": {"enabled": True}},
        "monitor": {"log_every": 100},
    }
    for name, section in sections.items():
        recipe.setdefault(name, {}).update(section)
    path = folder / "recipe.yaml"
    path.write_text(json.dumps(recipe, indent=1))  # JSON is YAML
    return path


def tiny_network(folder):
    """One weight and one bias: a step that takes next to no time."""
    torch.jit.script(torch.nn.Conv3d(1, 1, 1)).save(str(folder / "tiny.pt"))
    return {"architecture": "torchscript", "file": str(folder / "tiny.pt"), "out_channels": 1, "filters": []}


class Ballast(torch.nn.Module):
    """A few milliseconds of work, but a checkpoint of many megabytes."""

    def __init__(self, megabytes):
        super().__init__()
        self.first = torch.nn.Conv3d(1, 8, 3, padding=1)
        self.last = torch.nn.Conv3d(8, 1, 3, padding=1)
        self.register_buffer("ballast", torch.zeros(megabytes * 250_000))

    def forward(self, x):
        return self.last(torch.relu(self.first(x)))


def heavy_augmentation():
    return {name: {"enabled": True, "prob": 1.0}
            for name in ("elastic", "rotate", "blur", "noise", "low_resolution", "gamma", "contrast")}


def costly_target():
    """Thinning the label is work of the data threads; the loss itself is one product."""
    return {"terms": [{"name": "skeleton_recall"}]}


def one_thread(folder, source):
    write_cases(folder, source, 3, (56, 60, 64))
    patch = [source.choice([40, 44, 48])] * 3
    return write_recipe(folder, model=tiny_network(folder),
                        data={"patch_size": patch, "num_workers": 1, "batch_size": source.choice([2, 3])},
                        augmentation=heavy_augmentation(), loss=costly_target())


def heavy_transforms(folder, source):
    write_cases(folder, source, 3, (56, 60, 64))
    return write_recipe(folder, data={"patch_size": [source.choice([40, 48])] * 3, "num_workers": CPUS,
                                      "batch_size": source.choice([2, 3])}, augmentation=heavy_augmentation(),
                        model=tiny_network(folder), loss=costly_target())


def too_many_threads(folder, source):
    write_cases(folder, source, 3, (40, 48, 56))
    return write_recipe(folder, data={"patch_size": [32, 32, 32]}, model={"filters": [4, 8, source.choice([8, 16])]},
                        system={"num_cpus": CPUS * source.choice([8, 12])})


def slow_disk(folder, source):
    """Every volume is read once: a throttled reader is what the first steps wait for."""
    write_cases(folder, source, 160, (24, 48, source.choice([48, 64])))
    return write_recipe(folder, data={"num_workers": source.choice([1, 2])})


def cache_that_misses(folder, source):
    """A cache of a few volumes, and a disk that is not free."""
    write_cases(folder, source, 24, (48, 64, source.choice([64, 80])))
    return write_recipe(folder, data={"cache_gb": 0.002, "placement": "disk", "num_workers": source.choice([1, 2])})


def filter_at_every_access(folder, source):
    write_cases(folder, source, 120, (16, 32, 40))
    return write_recipe(folder, data={"preprocess": [{"name": "median", "size": source.choice([5, 7])}],
                                      "cache_preprocessed": False, "num_workers": source.choice([1, max(1, CPUS - 1)]),
                                      "patch_size": [16, 32, 32]})


def packed_files(folder, source):
    write_cases(folder, source, 70, (96, 144, 160), compression=source.choice(["lzw", "zlib"]))
    return write_recipe(folder, suffix="tif", data={"patch_size": [8, 8, 8], "num_workers": source.choice([1, 2])},
                        model=tiny_network(folder))


def slow_loss(folder, source):
    write_cases(folder, source, 3, (40, 48, 56))
    term = source.choice([{"name": "topology", "every": 1}, {"name": "topology", "every": 1}, {"name": "hausdorff_dt"}])
    return write_recipe(folder, data={"patch_size": [source.choice([32, 40])] * 3},
                        model=tiny_network(folder), loss={"terms": [{"name": "dice"}, {"name": "bce"}, term]})


def checkpoint_every_step(folder, source):
    write_cases(folder, source, 3, (24, 28, 32))
    torch.jit.script(Ballast(source.choice([32, 64]))).save(str(folder / "tiny.pt"))
    return write_recipe(folder, data={"patch_size": [24, 24, 24]},
                        model={"architecture": "torchscript", "file": str(folder / "tiny.pt"), "out_channels": 1,
                               "filters": []},
                        training={"iterations_per_epoch": 1, "save_every": 1})


def large_network(folder, source):
    write_cases(folder, source, 3, (40, 48, 56))
    return write_recipe(folder, data={"patch_size": [32, 32, 32]}, model={"filters": [8, 16, source.choice([24, 32])]})


def log_at_every_step(folder, source):
    """Rows that go to a mount which confirms each of them."""
    write_cases(folder, source, 3, (24, 28, 32))
    return write_recipe(folder, monitor={"log_every": source.choice([1, 2])})


def tiny_batches(folder, source):
    """One small patch a step: what operations take beside their work."""
    write_cases(folder, source, 3, (24, 28, 32))
    return write_recipe(folder, data={"patch_size": [8, 8, 8], "batch_size": 1},
                        model={"filters": [4, 8, source.choice([8, 16])]})


# name: (recipe, what may be named, needs the data to be known already, environment)
PLANTS = {
    "one thread": (one_thread, {"threads", "augment"}, False, {}),
    "heavy transforms": (heavy_transforms, {"augment", "threads"}, False, {}),
    "too many threads": (too_many_threads, {"oversubscription"}, False, {}),
    "slow disk": (slow_disk, {"storage"}, True, {"VOXLOOM_TEST_READ_MBPS": "2"}),
    "cache that misses": (cache_that_misses, {"cache"}, True, {"VOXLOOM_TEST_READ_MBPS": "1"}),
    "filter at every access": (filter_at_every_access, {"preprocess"}, True, {}),
    "packed files": (packed_files, {"decode"}, True, {}),
    "slow loss": (slow_loss, {"loss"}, False, {}),
    "checkpoint every step": (checkpoint_every_step, {"checkpoint"}, False, {}),
    "log at every step": (log_at_every_step, {"logging"}, False, {"VOXLOOM_TEST_LOG_MS": "20"}),
    "tiny batches": (tiny_batches, {"gpu_compute"}, False, {}),
    "large network": (large_network, {"gpu_compute"}, False, {}),
}


def profile_plant(voxloom, folder, name, source, steps=None):
    """The recipe, its profile, and what may be named."""
    make, expected, known, environment = PLANTS[name]
    recipe = make(folder, source)
    if known:  # checks every volume once, as an earlier run would have
        voxloom("profile", recipe, "--data-only", "--steps", 2, "--json")
    extra = ("--steps", steps) if steps else ()
    result = voxloom("profile", recipe, "--json", *extra, env=environment)
    return recipe, json.loads(result.stdout), expected
