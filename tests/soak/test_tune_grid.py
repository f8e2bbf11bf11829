"""`voxloom tune` against the grid that the guides would have one try: as good, in a tenth of its time."""
import itertools
import json
import pathlib
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from plants import heavy_augmentation, write_cases, write_recipe  # noqa: E402

STEPS = 20
ROUNDS = 3  # of the two that are compared at the end
SHARED_DISK = {"VOXLOOM_TEST_READ_MBPS": "4"}


def guides_recipe(folder, source):
    """Batch 1, one worker, one batch ahead, float32; samples read and filtered anew, from a disk that many share."""
    write_cases(folder, source, 16, (48, 64, source.choice([64, 72])))
    return write_recipe(
        folder, model={"filters": [2, 4]}, training={"precision": "32"}, augmentation=heavy_augmentation(),
        data={"patch_size": [24, 24, 24], "batch_size": 1, "num_workers": 1, "prefetch_factor": 1,
              "placement": "disk", "cache_gb": 0.003})


def grid():
    placements = ("data.placement=disk",), ("data.placement=host", "data.cache_gb=0.5")
    for workers, prefetch, batch, precision, placement in itertools.product(
            (1, 2, 4, 8), (1, 2, 4), (1, 2, 4), ("32", "bf16-mixed"), placements):
        yield (f"data.num_workers={workers}", f"data.prefetch_factor={prefetch}", f"data.batch_size={batch}",
               f"training.precision={precision}", *placement)


def samples_per_s(voxloom, recipe, changes):
    result = voxloom("profile", recipe, *changes, "--alone", "--warm-cache", "--steps", STEPS, "--json",
                     env=SHARED_DISK)
    return json.loads(result.stdout)["samples_per_s"]


def test_tune_reaches_the_best_of_the_grid_in_a_tenth_of_its_time(voxloom, draw, tmp_path):
    recipe = guides_recipe(tmp_path, draw)
    voxloom("profile", recipe, "--data-only", "--steps", 2, "--json")  # checks every volume once
    begin = time.monotonic()
    measured = {changes: samples_per_s(voxloom, recipe, changes) for changes in grid()}
    grid_s = time.monotonic() - begin
    best = max(measured, key=measured.get)

    begin = time.monotonic()
    result = json.loads(voxloom("tune", recipe, "--allow", "batch,precision", "--steps", STEPS, "--minutes",
                                grid_s / 10 / 60, "--json", env=SHARED_DISK).stdout)
    tune_s = time.monotonic() - begin
    for trial in result["trials"]:
        print(f"  {trial['verdict']}: {trial['name']}: {trial['samples_per_s'] or 0:.1f} samples/s, "
              f"{trial['seconds']:.1f} s, {trial['note']}", flush=True)

    rounds = [(samples_per_s(voxloom, recipe, best), samples_per_s(voxloom, recipe, result["chosen"]))
              for _ in range(ROUNDS)]
    of_grid, of_tune = (statistics.median(values) for values in zip(*rounds))
    start = next(rate for changes, rate in measured.items() if changes[:3] == (
        "data.num_workers=1", "data.prefetch_factor=1", "data.batch_size=1"))
    print(f"as it is {start:.1f} samples/s\ngrid: {len(measured)} settings in {grid_s:.0f} s; best {of_grid:.1f} "
          f"samples/s ({measured[best]:.1f} in the grid): {' '.join(best)}\ntune: {len(result['trials'])} trials in "
          f"{tune_s:.0f} s; {of_tune:.1f} samples/s, {of_tune / of_grid:.2f} of the best: {' '.join(result['chosen'])}")
    assert of_tune >= 0.9 * of_grid
    assert tune_s <= 0.1 * grid_s + 1  # the last trial may have begun just before
