"""voxloom doctor: the machine, and what a recipe does on it."""
import json
import os
import shlex

import numpy as np
import pytest

from training import write_training

VERDICTS = ["fine", "will hurt", "will fail"]
CPUS = len(os.sched_getaffinity(0))


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    import random
    return write_training(tmp_path_factory.mktemp("doctor"), random.Random(5))


@pytest.fixture
def doctor(voxloom, recipe, tmp_path):
    """{name: [findings]} of the recipe with overrides, and the exit status."""

    def run(*overrides, config=recipe):
        result = voxloom("doctor", config, *overrides, "--json", check=False, cwd=tmp_path)
        report = json.loads(result.stdout)
        found = {}
        for row in report["recipe"]:
            found.setdefault(row["name"], []).append(row)
        return found, result.returncode

    return run


def verdict(findings, name):
    return max((row["verdict"] for row in findings[name]), key=VERDICTS.index)


def sentence(findings, name):
    return " ".join(row["sentence"] for row in findings[name])


def test_the_machine_alone(voxloom, tmp_path):
    result = voxloom("doctor", "--json", check=False, cwd=tmp_path)
    report = json.loads(result.stdout)
    assert "recipe" not in report
    names = {row["name"] for row in report["machine"]}
    assert {"gpu", "torch", "operations", "instructions", "cpus", "memory", "open files", "shared memory", "run folder",
            "cache folder"} <= names
    for row in report["machine"]:
        assert set(row) == {"name", "verdict", "sentence", "proof"} and row["verdict"] in VERDICTS, row
        assert row["sentence"] and row["proof"], row
    fails = any(row["verdict"] == "will fail" for row in report["machine"])
    assert result.returncode == (3 if fails else 0)
    assert report["verdict"] == max((row["verdict"] for row in report["machine"]), key=VERDICTS.index)
    assert list(tmp_path.iterdir()) == []  # a look leaves nothing behind


def test_memory_and_cpus_are_those_of_this_process(voxloom, tmp_path):
    """The kernel's own answers, asked from here; affinity halved for the child."""
    one = min(os.sched_getaffinity(0))
    result = voxloom("doctor", "--json", check=False, cwd=tmp_path, preexec_fn=lambda: os.sched_setaffinity(0, {one}))
    rows = {row["name"]: row for row in json.loads(result.stdout)["machine"]}
    assert rows["cpus"]["sentence"].startswith("1 of "), rows["cpus"]
    assert rows["cpus"]["verdict"] == "will hurt"
    gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    if "container's limit" not in rows["memory"]["sentence"]:
        assert float(rows["memory"]["sentence"].split()[0]) == pytest.approx(gib, rel=0.05)


def test_limits_of_this_process(voxloom, tmp_path):
    import resource

    def fewer_files():
        resource.setrlimit(resource.RLIMIT_NOFILE, (512, 512))

    result = voxloom("doctor", "--json", check=False, cwd=tmp_path, preexec_fn=fewer_files)
    rows = {row["name"]: row for row in json.loads(result.stdout)["machine"]}
    assert rows["open files"]["verdict"] == "will hurt" and "512" in rows["open files"]["sentence"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_fails(voxloom, tmp_path):
    tmp_path.chmod(0o555)
    result = voxloom("doctor", "--json", check=False, cwd=tmp_path)
    tmp_path.chmod(0o755)
    assert result.returncode == 3


def test_a_cache_folder_that_cannot_be_made_fails(voxloom, recipe, tmp_path):
    (tmp_path / "file").write_text("")
    result = voxloom("doctor", recipe, f"data.cache_dir={tmp_path}/file/cache", check=False, cwd=tmp_path)
    assert result.returncode == 3
    assert "cache folder" in result.stdout and "cannot be written" in result.stdout


def test_text_names_the_proof_of_what_hurts(voxloom, recipe, tmp_path):
    result = voxloom("doctor", recipe, "data.prefetch_factor=1", "training.seed=3", check=False, cwd=tmp_path)
    lines = result.stdout.splitlines()
    (at,) = [i for i, line in enumerate(lines) if line.startswith("  will hurt  prefetch")]
    assert lines[at + 1].strip() == f"see: voxloom profile {recipe} training.seed=3 data.prefetch_factor=2"


def test_a_recipe_that_is_fine(doctor):
    findings, status = doctor()
    assert status == 0, findings
    for name in ("data", "device", "workers", "prefetch", "batch", "network", "patch", "cache", "checkpoints", "keys"):
        assert verdict(findings, name) == "fine", findings[name]
    assert sentence(findings, "data").startswith("2 cases to train on, 1 to validate")
    assert "effective batch 2 " in sentence(findings, "batch")


def test_bytes_of_volumes_are_those_of_the_files(doctor, recipe):
    findings, _ = doctor()
    folder = recipe.parent
    kib = sum(np.load(path).nbytes for path in folder.glob("*/case_*.npy")) / 1024
    assert f"{kib:.0f} KiB" in sentence(findings, "data")


# Lints do not look at one another, so that a recipe may have many of them at once.
@pytest.mark.parametrize("overrides, expected", [
    ([f"data.num_workers={CPUS + 1}", "data.prefetch_factor=1", "data.batch_size=1", "training.accumulate=3",
      "training.precision=bf16-mixed", "system.num_gpus=0", "data.patch_size=32,16,16", "data.persistent_workers=true",
      "training.momentum=0.5", "augmentation.elastic.prob=0.5", "data.validation="],
     [("workers", "will hurt", "take turns"), ("prefetch", "will hurt", "2 to 4"),
      ("batch", "will hurt", "effective batch 3 "), ("precision", "will hurt", "float32"),
      ("patch", "will hurt", "padding"), ("keys", "will hurt", "data.persistent_workers has no effect"),
      ("keys", "will hurt", "only training.optimizer: sgd"),
      ("keys", "will hurt", "augmentation.elastic.enabled is off"), ("data", "will hurt", "no best checkpoint")]),
    (["data.batch_size=1", "model.norm=batch", "data.cache_gb=0.00005", "model.architecture=monai_unet",
      "model.deep_supervision=true", "model.mednext_kernel=5", "model.depth_2d=1", "model.deep_supervision_heads=2"],
     [("batch", "will hurt", "instance norm"), ("cache", "will hurt", "set data.cache_gb to 1"),
      ("keys", "will hurt", "no coarser outputs"), ("keys", "will hurt", "model.mednext_kernel has no effect"),
      ("keys", "will hurt", "model.depth_2d has no effect"), ("keys", "will hurt", "heads has no effect")]),
    (["data.patch_size=16,16,17"], [("network", "will fail", "17")]),
    (["data.patch_size=32,16,16", "data.padding=none", "system.num_gpus=3"],
     [("patch", "will fail", "data.padding is none"), ("device", "will fail", "3")]),
    (["data.images=nothing/*.npy", "training.save_every=1", "training.keep_last=900000000"],
     [("data", "will fail", "nothing"), ("checkpoints", "will fail", "will be full")]),
])
def test_lints(doctor, overrides, expected):
    findings, status = doctor(*overrides)
    for name, outlook, words in expected:
        assert verdict(findings, name) == outlook, findings[name]
        assert words in sentence(findings, name)
    assert status == (1 if any(verdict(findings, key) == "will fail" for key in findings) else 0)


def test_one_worker_beside_many_cpus(doctor):
    findings, _ = doctor("data.num_workers=1")
    assert verdict(findings, "workers") == ("will hurt" if CPUS >= 4 else "fine")


@pytest.mark.parametrize("name, overrides", [("network", ["data.patch_size=16,16,17"]),
                                             ("patch", ["data.patch_size=32,16,16", "data.padding=none"]),
                                             ("data", ["data.images=[nothing/*.npy]"])])
def test_what_will_fail_does_fail_and_so_does_what_proves_it(voxloom, doctor, recipe, tmp_path, name, overrides):
    result = voxloom("train", recipe, *overrides, "--fast-dev-run", "1", check=False, cwd=tmp_path)
    assert result.returncode == 1, result.stdout + result.stderr
    proof = shlex.split(doctor(*overrides)[0][name][0]["proof"])
    assert proof[0] == "voxloom" and proof[2:3 + len(overrides)] == [str(recipe), *overrides]
    assert voxloom(*proof[1:], check=False, cwd=tmp_path).returncode == 1, proof


def test_a_damaged_case_that_is_skipped_fails_nothing(doctor, tmp_path):
    import random
    recipe = write_training(tmp_path, random.Random(6))
    (tmp_path / "images" / "case_001.npy").write_bytes(b"\x93NUMPY")
    findings, status = doctor("data.on_bad_case=skip", config=recipe)
    assert status == 0 and verdict(findings, "data") == "will hurt", findings
    assert sentence(findings, "data").startswith("1 cases to train on, 1 to validate")
    assert "1 left out as data.on_bad_case says, the first: case case_001" in sentence(findings, "data")


def test_synthetic_data_is_not_made(doctor, tmp_path):
    recipe = tmp_path / "synth.yaml"
    recipe.write_text("data: {root: data, synth: {kind: scroll}, images: ['train_images/*.tif'], "
                      "label: 'train_labels/{id}.tif', patch_size: 32}\nmodel: {filters: [4, 8]}\n")
    findings, _ = doctor(config=recipe)
    assert verdict(findings, "data") == "fine" and not (tmp_path / "data").exists()


def test_a_misspelt_key_is_the_usual_error(voxloom, recipe):
    result = voxloom("doctor", recipe, "data.batchsize=2", "--json", check=False)
    assert result.returncode == 1 and result.stdout == "" and "batch_size" in result.stderr


def test_a_recipe_without_data_is_judged_too(voxloom, tmp_path):
    (tmp_path / "empty.yaml").write_text("{}\n")
    result = voxloom("doctor", tmp_path / "empty.yaml", "--device", "cpu", "--json", check=False, cwd=tmp_path)
    rows = {row["name"]: row for row in json.loads(result.stdout)["recipe"]}
    assert result.returncode == 1 and rows["data"]["verdict"] == "will fail"
    assert rows["device"]["sentence"] == "trains on the CPU"
    assert voxloom("doctor", "--device", "gpu", check=False).returncode == 1
