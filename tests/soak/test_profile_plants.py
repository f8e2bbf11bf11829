"""`voxloom profile` on twenty recipes drawn at random, each with one stage made slow; and what its first suggestion
brings once it is followed."""
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from plants import PLANTS, profile_plant  # noqa: E402

CONFIGURATIONS = 20


def follow(voxloom, recipe, changes, environment, steps):
    """The step once the changes hold: what they keep in memory or on disk is there already, and then as many steps as
    a stable median needs; without, `steps` of volumes that are as new as they were."""
    kept = any("cache" in change for change in changes)
    if kept:
        voxloom("profile", recipe, *changes, "--alone", "--warm-cache", "--data-only", "--steps", 2)
    warm = ["--warm-cache"] if any("cache_gb" in change for change in changes) else []
    count = ["--steps", steps] if steps and not kept else []
    result = voxloom("profile", recipe, *changes, *warm, "--alone", "--json", *count, env=environment)
    return json.loads(result.stdout)["step_ms"]


def test_the_planted_cause_is_named_and_predictions_hold(voxloom, draw, tmp_path):
    named, predictions = [], []
    for number in range(CONFIGURATIONS):
        name = draw.choice(sorted(PLANTS))
        folder = tmp_path / str(number)
        folder.mkdir()
        steps = 15 if PLANTS[name][2] else None  # while volumes are new
        recipe, profile, expected = profile_plant(voxloom, folder, name, draw, steps=steps)
        found = profile["bottleneck"]["name"]
        named.append(found in expected)
        line = (f"{name}: {found} in {profile['step_ms']:.1f} ms a step"
                f" ({profile['threads']['others_cpus']:.1f} CPUs busy with other things)")
        if profile["suggestions"]:
            first = profile["suggestions"][0]
            after = follow(voxloom, recipe, first["changes"], PLANTS[name][3], steps)
            predictions.append(abs(after / first["predicted_step_ms"] - 1) < 0.2)
            line += f"; {first['change']}: {first['predicted_step_ms']:.1f} predicted, {after:.1f} measured"
        print(line if named[-1] else f"WRONG {line}: {profile['bottleneck']['evidence']}", flush=True)
    print(f"named {sum(named)} of {len(named)}; predicted within 20 %: {sum(predictions)} of {len(predictions)}")
    assert sum(named) >= CONFIGURATIONS - 1
    assert sum(predictions) >= 0.8 * len(predictions)
