"""`voxloom profile A.yaml B.yaml`: two recipes measured in turns."""
import json
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from plants import write_cases, write_recipe  # noqa: E402


@pytest.fixture
def recipe(draw, tmp_path):
    write_cases(tmp_path, draw, 3, (32, 36, 40))
    return write_recipe(tmp_path, augmentation={"noise": {"enabled": True, "prob": 1.0}, "flip": {"enabled": True}})


def profile(voxloom, *arguments, **options):
    return json.loads(voxloom("profile", *arguments, "--json", **options).stdout)


def test_two_recipes_in_turns(voxloom, recipe):
    larger = recipe.with_name("larger.yaml")
    changed = json.loads(recipe.read_text())
    changed["model"]["filters"] = [16, 32]
    larger.write_text(json.dumps(changed))
    result = profile(voxloom, recipe, larger, "--steps", 4)["compared"]
    low, high = result["interval"]
    assert low <= result["ratio"] <= high and low > 1.1, result
    assert 0.5 < result["ratio"] / (result["second_step_ms"] / result["first_step_ms"]) < 2, result
