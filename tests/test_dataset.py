"""Cases and splits as a recipe describes them, and what is said where it describes them wrongly."""
import collections
import json

import numpy as np
import pytest


def write_recipe(folder, data, **sections):
    path = folder / "recipe.yaml"
    data = {"root": str(folder), "cache_dir": str(folder / "cache"), **data}
    path.write_text(json.dumps({"data": data, **sections}))  # JSON is YAML
    return path


def save(path, array):
    path.parent.mkdir(parents=True, exist_ok=True)
    np.save(path, array)


def small(value=0, shape=(6, 7, 8)):
    return np.full(shape, value, np.uint8)


@pytest.fixture
def cases(voxloom, tmp_path):
    """Inspects a recipe made of `data` and gives its cases by id."""

    def inspect(data, **sections):
        out = voxloom("inspect", write_recipe(tmp_path, data, **sections), "--json").stdout
        return {case["id"]: case for case in json.loads(out)["cases"]}

    return inspect


@pytest.fixture
def sentence(voxloom, tmp_path):
    """What the program says of a recipe that is wrong."""

    def inspect(data):
        result = voxloom("bench", "data", write_recipe(tmp_path, data), "--batches", 1, check=False)
        assert result.returncode == 1, result.stderr
        assert result.stderr.strip().count("\n") == 0, "one sentence"
        return result.stderr

    return inspect


def test_folds_hold_out_every_group_once_and_never_leak(cases, draw, tmp_path):
    groups = {f"c{i}": f"scroll{draw.randrange(7)}" for i in range(24)}
    for name in groups:
        save(tmp_path / f"images/{name}.npy", small())
    (tmp_path / "train.csv").write_text("id,scroll_id\n" + "".join(f"{c},{g}\n" for c, g in groups.items()))
    data = {"csv": "train.csv", "group_column": "scroll_id", "images": ["images/{id}.npy"], "folds": 3}
    held_out = collections.Counter()
    for fold in range(3):
        found = cases(data, training={"fold": fold, "seed": 5})
        assert set(found) == set(groups)
        splits = collections.defaultdict(set)
        for name, case in found.items():
            assert case["group"] == groups[name]
            splits[case["group"]].add(case["split"])
            held_out[name] += case["split"] == "validation"
        assert all(len(kinds) == 1 for kinds in splits.values())
    assert set(held_out.values()) == {1}


def test_channels_labels_and_statistics_are_those_of_the_files(cases, draw, tmp_path):
    generator = np.random.default_rng(draw.randrange(2**32))
    first = generator.integers(-1000, 3000, (9, 10, 11)).astype(np.int16)
    second = generator.normal(5, 2, (9, 10, 11)).astype(np.float32)
    label = generator.integers(0, 4, (9, 10, 11)).astype(np.uint8)
    save(tmp_path / "images/p_0000.npy", first)
    save(tmp_path / "images/p_0001.npy", second)
    save(tmp_path / "labels/p.npy", label)
    case = cases({"images": ["images/{id}_0000.npy", "images/{id}_0001.npy"], "label": "labels/*.npy",
                  "split": "none"})["p"]
    assert case["channels"] == 2
    np.testing.assert_allclose(case["mean"], [first.mean(), second.mean(dtype=np.float64)], rtol=1e-9)
    np.testing.assert_allclose(case["std"], [first.std(), second.std(dtype=np.float64)], rtol=1e-9)
    values, counts = np.unique(label, return_counts=True)
    assert case["labels"] == {str(v): c for v, c in zip(values.tolist(), counts.tolist())}


def test_problems_of_a_dataset_are_named(sentence, tmp_path):
    save(tmp_path / "images/a.npy", small())
    save(tmp_path / "images/b.npy", small())
    save(tmp_path / "labels/a.npy", small())
    save(tmp_path / "more/a.npy", small())
    base = {"images": ["images/*.npy"], "split": "none"}
    said = sentence({**base, "images": ["images/*.tif"]})
    assert "empty" in said and "images/*.tif" in said and str(tmp_path / "images") in said
    said = sentence({**base, "label": "labels/{id}.npy"})
    assert "case b" in said and str(tmp_path / "labels/b.npy") in said
    said = sentence({**base, "images": ["*/*.npy"], "cases": [{"images": ["images/a.npy"]}, {"images": ["more/a.npy"]}]})
    assert "images/a.npy" in said and "more/a.npy" in said
    said = sentence({**base, "split": "explicit", "validation": ["aa"]})
    assert '"aa"' in said and 'did you mean "a"' in said
    (tmp_path / "t.csv").write_text("id,split,who\na,train,x\nb,val,x\n")
    said = sentence({"images": ["images/{id}.npy"], "csv": "t.csv", "split": "column", "group_column": "who"})
    assert '"x"' in said and "case a" in said and "case b" in said


def test_problems_of_a_case_are_named(sentence, tmp_path):
    save(tmp_path / "images/a.npy", small())
    save(tmp_path / "labels/a.npy", small(shape=(6, 7, 9)))
    base = {"images": ["images/*.npy"], "label": "labels/{id}.npy", "split": "none"}
    said = sentence(base)
    assert "case a" in said and "6x7x9" in said and "6x7x8" in said
    label = small()
    label[0, 0, :3] = 9
    save(tmp_path / "labels/a.npy", label)
    said = sentence({**base, "labels": [0, 1]})
    assert "case a" in said and "value 9" in said and "3 voxels" in said and "labels/a.npy" in said
    image = small().astype(np.float32)
    image[1, 2, 3:5] = np.nan
    save(tmp_path / "images/a.npy", image)
    said = sentence(base)
    assert "case a" in said and "2 NaN" in said and "z=1 y=2 x=3" in said and "images/a.npy" in said
    said = sentence({**base, "cache_gb": 1e-7})
    assert "data.cache_gb" in said and "case a" in said


def test_skipped_cases_are_listed_and_the_rest_goes_on(voxloom, tmp_path):
    save(tmp_path / "images/a.npy", small())
    save(tmp_path / "images/b.npy", small())
    (tmp_path / "images/b.npy").write_bytes((tmp_path / "images/b.npy").read_bytes()[:-50])
    recipe = write_recipe(tmp_path, {"images": ["images/*.npy"], "split": "none", "on_bad_case": "skip"})
    result = voxloom("inspect", recipe, "--json")
    assert [case["id"] for case in json.loads(result.stdout)["cases"]] == ["a"]
    assert "b" in json.dumps(json.loads(result.stdout).get("problems", "")) + result.stderr
