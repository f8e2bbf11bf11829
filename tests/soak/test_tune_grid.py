"""`voxloom tune` against the grid that the guides would have one try: as good, in a tenth of its time."""
import importlib.machinery
import importlib.util
import os

from conftest import PROGRAM, REPOSITORY


def bench_script(name):
    loader = importlib.machinery.SourceFileLoader(name, str(REPOSITORY / "bench" / name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    loader.exec_module(module)
    return module


def test_tune_reaches_the_best_of_the_grid_in_a_tenth_of_its_time(draw, tmp_path):
    bench = bench_script("tune_grid")
    device = os.environ.get("VOXLOOM_DEVICE", "cpu")
    tuned = bench.Tuned(PROGRAM, tmp_path, device, seed=draw.randrange(2**31))
    found = bench.tune_against_grid(tuned, list(bench.grid(device)), note=bench.Rows(None, device, ""))
    print({key: round(value, 1) for key, value in found.items()})
    assert bench.holds(found), found
