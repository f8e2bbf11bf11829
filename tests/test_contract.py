"""The command line as it is promised: options that every command takes, exit statuses, and one sentence for a mistake."""
import json
import os
import resource
import shlex
import shutil
import subprocess
import time

import numpy as np
import pytest
from conftest import PROGRAM
from training import checkpoint, metadata, record, rows, tensors, write_training


def sentence(result, status):
    """What was said of a mistake: the status, nothing on standard output, one line that tells no C++ or torch internals."""
    assert result.returncode == status, (result.returncode, result.stderr)
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    assert len(lines) == 1, result.stderr
    for word in ("Exception", "frame #", "c10::", "std::", "json.exception", "mistake in Voxloom"):
        assert word not in result.stderr
    return lines[0]


@pytest.mark.parametrize("command", [["status"], ["list", "formats"], ["weights", "show"]])
def test_every_command_takes_a_device_and_a_version(voxloom, tmp_path, command):
    assert voxloom(*command[:1], "--version").stdout == voxloom("--version").stdout
    assert "--device" in voxloom(*command, "--help").stdout
    result = voxloom(*command, "--device", "gpu", check=False)
    assert result.returncode == 2 and "cuda:N" in result.stderr


def test_devices_do_not_change_what_is_listed(voxloom):
    assert voxloom("list", "formats", "--device", "cpu").stdout == voxloom("list", "formats").stdout


@pytest.mark.parametrize("arguments, words", [
    (["train", "r.yaml", "--rnu", "x"], "--run"), (["train"], "config"), (["status", "--jsn"], "--json"),
    (["synth", "scroll", "x", "--count", "0"], "--count"), (["stop", "x", "--at", "once"], "epoch"),
    (["weights", "forward", "a", "b"], "output"), (["bench", "data", "r.yaml", "--warm-up", "-5"], "--warm-up"),
    (["bench", "data", "r.yaml", "--threads", "100000"], "--threads"), (["bench", "step", "--block", "-1"], "--block"),
    (["train", "r.yaml", "--fast-dev-run=many"], "many")])
def test_a_wrong_command_line_is_one_line_and_status_2(voxloom, tmp_path, arguments, words):
    said = sentence(voxloom(*arguments, check=False, cwd=tmp_path), 2)
    assert words in said and "--help" in said and len(said) < 300


def test_an_option_with_commas_takes_one_word(voxloom, tmp_path):
    voxloom("synth", "mitochondria", "--size", "12,14,16", tmp_path / "data", "--count", "1")
    volume, = (tmp_path / "data" / "images").iterdir()
    voxloom("convert", "--chunk", "8,8,8", volume, tmp_path / "a.zarr", "--codec", "zstd")
    read, = json.loads(voxloom("bench", "io", "--box", "8,8,8", tmp_path / "a.zarr", "--count", "2", "--json").stdout)
    loss, = json.loads(voxloom("bench", "loss", "--size", "8,8,8", "dice", "--repeats", "1", "--json").stdout)
    assert read["median_ms"] > 0 and loss["name"] == "dice"


def test_names_that_are_not_utf8_are_told_in_json(voxloom, draw, tmp_path):
    recipe = write_training(tmp_path, draw)
    odd = os.fsdecode(b"M\xfcller")
    for kind in ("images", "labels"):
        (tmp_path / kind / "case_002.npy").rename(tmp_path / kind / f"{odd}.npy")
    volume = tmp_path / "labels" / f"{odd}.npy"
    run = tmp_path / "runs" / odd
    voxloom("train", recipe, "--run", run, "data.split=none", "training.max_epochs=1", "training.iterations_per_epoch=2",
            errors="surrogateescape")
    for arguments in (["inspect", recipe, "data.split=none"], ["bench", "io", volume], ["status"],
                      ["evaluate", "--task", "segmentation", "--prediction", volume, "--reference", volume]):
        result = voxloom(*arguments, "--json", check=False, cwd=tmp_path, errors="strict")
        assert "M\ufffdller" in json.dumps(json.loads(result.stdout), ensure_ascii=False), arguments
    volume.write_bytes(b"\x93NUMPY and no more")  # a damaged file is named
    for command in ("doctor", "inspect"):
        result = voxloom(command, recipe, "data.split=none", "--json", check=False, cwd=tmp_path, errors="strict")
        assert "M\ufffdller" in json.dumps(json.loads(result.stdout), ensure_ascii=False), command


@pytest.mark.parametrize("kind", ["scroll", "dose", "mitochondria"])
def test_synthetic_data_without_voxels_is_refused(voxloom, tmp_path, kind):
    assert "-1" in sentence(voxloom("synth", kind, "x", "--size", "-1", "--format", "tiff", check=False, cwd=tmp_path), 1)


@pytest.mark.parametrize("output, options, words", [("", ["--size", "8"], "its name is empty"),
                                                    ("x", ["--size", "9999999999999"], "65536"),
                                                    ("x", ["--count", "99999999999999999999"], "1 to 1000000")])
def test_synthetic_data_without_a_place_or_without_bounds_is_refused(voxloom, tmp_path, output, options, words):
    assert words in sentence(voxloom("synth", "scroll", output, *options, check=False, cwd=tmp_path, timeout=20), 1)
    assert not any(tmp_path.iterdir())


def test_synthetic_data_that_is_refused_leaves_nothing_behind(voxloom, tmp_path):
    said = sentence(voxloom("synth", "dose", "x", "--size", "32", "--format", "openkbp", check=False, cwd=tmp_path), 1)
    assert "128x128x128" in said and not (tmp_path / "x").exists()


def test_synthetic_data_that_was_deleted_is_made_again(voxloom, tmp_path):
    made = ["synth", "mitochondria", tmp_path / "data", "--count", "1", "--size", "12"]
    voxloom(*made)
    volume, = (tmp_path / "data" / "images").iterdir()
    before = volume.read_bytes()
    shutil.rmtree(tmp_path / "data" / "images")
    shutil.rmtree(tmp_path / "data" / "labels")
    voxloom(*made)  # what `rm data/*` leaves begins with a dot
    assert volume.read_bytes() == before
    assert "another request" in sentence(voxloom(*made, "--seed", "2", check=False), 1)


def test_a_dry_run_refuses_synthetic_data_that_a_run_would_refuse(voxloom, draw, tmp_path):
    recipe = write_training(tmp_path, draw)
    synth = [recipe, "data.root=made", "data.synth.count=1", "data.synth.size=12"]
    for kind, words in (("scrol", "mitochondria"), ("mitochondria", "another request")):
        for dry in ([], ["--dry-run"]):
            refused = voxloom("train", *synth, f"data.synth.kind={kind}", *dry, check=False, cwd=tmp_path)
            assert words in sentence(refused, 1)
        voxloom("synth", "scroll", tmp_path / "made", "--count", "1", "--size", "12")


def test_mistakes_of_a_first_day_leave_no_run_behind(voxloom, draw, tmp_path):
    recipe = write_training(tmp_path, draw)
    (tmp_path / "empty").mkdir()
    for arguments, words in [([tmp_path / "images"], "voxloom init"), (["none.yaml"], "none.yaml"),
                             ([recipe, "data.root=empty"], "data.root"), ([recipe, "data.csv=t.csv"], "data.root"), ([recipe, "model.architecture=unett"], "mean unet"),
                             ([recipe, "loss.terms=[dice"], "loss.terms"), ([recipe, "data.train=[case_9]"], "case_9")]:
        assert words in sentence(voxloom("train", *arguments, check=False, cwd=tmp_path), 1)
    assert not (tmp_path / "runs").exists()
    assert "voxloom init" in sentence(voxloom("inspect", tmp_path / "images", check=False), 1)


def test_what_cannot_be_written_is_refused_before_it_is_computed(voxloom, draw, tmp_path):
    recipe = write_training(tmp_path, draw)
    below_a_file = recipe / "new.yaml"
    for arguments in (["tune", recipe], ["init", tmp_path]):
        assert f"folder {recipe}" in sentence(voxloom(*arguments, "--output", below_a_file, check=False, cwd=tmp_path), 1)
    assert f"folder {recipe}" in sentence(voxloom("tune", recipe, "--run", recipe, check=False, cwd=tmp_path), 1)


def test_a_recipe_without_a_root_is_read_from_any_folder(voxloom, draw, tmp_path):
    recipe = write_training(tmp_path, draw)
    recipe.write_text(recipe.read_text().replace(f"  root: {tmp_path}\n", ""))
    (tmp_path / "elsewhere").mkdir()
    from_elsewhere, here = (json.loads(voxloom("inspect", recipe, "--json", cwd=folder).stdout)
                            for folder in (tmp_path / "elsewhere", tmp_path))
    assert from_elsewhere == here and len(here["cases"]) == 3
    found = json.loads(voxloom("doctor", recipe, "--json", check=False, cwd=tmp_path / "elsewhere").stdout)["recipe"]
    assert next(row for row in found if row["name"] == "data")["verdict"] == "fine"


def test_a_number_may_be_joined_to_fast_dev_run(voxloom, draw, tmp_path):
    assert "median of 2" in voxloom("train", write_training(tmp_path, draw), "--fast-dev-run=2", cwd=tmp_path).stdout


def test_a_run_outlives_the_reader_of_its_messages(draw, tmp_path):
    recipe = write_training(tmp_path, draw)
    process = subprocess.Popen([PROGRAM, "train", recipe, "--run", tmp_path / "run"], stderr=subprocess.PIPE,
                               stdout=subprocess.DEVNULL)
    process.stderr.close()  # as `2>&1 | head` does
    assert process.wait(60) == 0
    assert record(tmp_path / "run")["state"] == "finished"


def test_what_is_told_where_nobody_listens_stands_in_no_file(voxloom, draw, tmp_path):
    """With standard output and error closed the next files that are opened would have their numbers."""
    recipe = write_training(tmp_path, draw)
    train = ["train", str(recipe), "training.max_epochs=1"]
    closed = subprocess.run(["sh", "-c", '"$@" <&- >&- 2>&-', "sh", PROGRAM, *train, "--run", tmp_path / "closed"])
    voxloom(*train, "--run", tmp_path / "open")
    assert closed.returncode == 0 and record(tmp_path / "closed")["state"] == "finished"
    for split in ("train", "val"):
        ours, plain = (rows(tmp_path / name, split) for name in ("closed", "open"))
        assert plain and [row["loss"] for row in ours] == [row["loss"] for row in plain]


def test_a_recipe_from_a_pipe_is_refused_and_not_taken_for_an_empty_one(voxloom, draw, tmp_path):
    recipe = write_training(tmp_path, draw)
    readable, writable = os.pipe()
    os.write(writable, recipe.read_bytes())
    os.close(writable)
    os.mkfifo(tmp_path / "fifo")  # nobody writes it: opening it would wait for ever
    for name in (f"/dev/fd/{readable}", tmp_path / "fifo"):
        said = sentence(voxloom("train", name, "--dry-run", check=False, pass_fds=[readable], timeout=20), 1)
        assert "pipe" in said
    os.close(readable)
    for arguments in (["weights", "show"], ["train", recipe, "--run", tmp_path / "run", "--resume"]):
        said = voxloom(*arguments, tmp_path / "fifo", check=False, timeout=20)
        assert said.returncode == 1 and "fifo: it is a pipe" in said.stderr


def test_a_conversion_that_is_ended_leaves_nothing_behind(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros((144, 512, 512), np.uint8))
    for name in ("a.tif", "a.zarr"):
        (tmp_path / name[2:]).mkdir()
        process = subprocess.Popen([PROGRAM, "convert", tmp_path / "a.npy", tmp_path / name[2:] / name],
                                   env={**os.environ, "VOXLOOM_TEST_READ_MBPS": "100"})
        while process.poll() is None and not any((tmp_path / name[2:]).iterdir()):
            time.sleep(0.01)
        process.terminate()
        assert process.wait(60) == 143 and not any((tmp_path / name[2:]).iterdir())


def test_a_limit_of_file_sizes_is_a_full_disk(draw, voxloom, tmp_path):
    def limited():  # the signal that comes with it would end the program
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))

    recipe = write_training(tmp_path, draw)
    result = voxloom("train", recipe, "--run", tmp_path / "run", check=False, preexec_fn=limited)
    assert result.returncode == 3 and "last.safetensors" in result.stderr
    assert record(tmp_path / "run")["state"] == "failed"


def test_output_that_nobody_can_keep_is_a_failure_of_the_machine(voxloom):
    with open("/dev/full", "w") as full:
        result = subprocess.run([PROGRAM, "list", "options", "--json"], stdout=full, stderr=subprocess.PIPE, text=True)
    assert result.returncode == 3 and "standard output" in result.stderr
    first = subprocess.run(f"{PROGRAM} list options | head -1", shell=True, capture_output=True, text=True)
    assert first.stderr == ""


def test_rounding_may_change_on_resume_and_is_said(voxloom, draw, tmp_path):
    recipe = write_training(tmp_path, draw)
    run = tmp_path / "run"
    voxloom("train", recipe, "--run", run, "training.max_epochs=1", "system.compute_threads=1", "data.placement=host")
    result = voxloom("train", recipe, "--run", run, "training.max_epochs=1", "system.compute_threads=2",
                     "data.placement=disk", check=False)
    assert result.returncode == 0 and "finished" in result.stdout
    with_more = voxloom("train", recipe, "--run", run, "training.max_epochs=2", "--force", "system.compute_threads=2",
                        "data.placement=disk").stderr
    assert "within rounding" in with_more and "threads were 1 and are 2" in with_more and "placement was host" in with_more


def test_starting_anew_keeps_the_curves_too(voxloom, draw, tmp_path):
    command = ["train", write_training(tmp_path, draw), "--run", tmp_path / "run", "training.max_epochs=1"]
    voxloom(*command)
    curves = (tmp_path / "run" / "metrics.csv").read_text()
    voxloom(*command, "--resume", "never", "training.seed=5")
    assert (tmp_path / "run" / "checkpoints-before-1" / "metrics.csv").read_text() == curves
    assert (tmp_path / "run" / "metrics.csv").read_text() != curves


def test_the_recorded_command_can_be_given_to_a_shell_again(voxloom, draw, tmp_path):
    (tmp_path / "it's here").mkdir()
    recipe = write_training(tmp_path / "it's here", draw)
    words = ["train", str(recipe), "loss.terms=[{name: dice}, {name: bce, weight: 0.5}]", "training.max_epochs=1"]
    voxloom(*words, "--run", tmp_path / "run")
    assert shlex.split(record(tmp_path / "run")["command"]) == ["voxloom", *words, "--run", str(tmp_path / "run")]


def test_weights_show_says_whether_a_network_fits(voxloom, draw, tmp_path):
    recipe = write_training(tmp_path, draw)
    voxloom("train", recipe, "--run", tmp_path / "run", "training.max_epochs=1")
    last = checkpoint(tmp_path / "run")
    shown = json.loads(voxloom("weights", "show", last, "--architecture", "unet", "--json").stdout)
    count = sum(values.size for name, values in tensors(last).items() if name.startswith("model."))
    assert shown["network"]["architecture"] == metadata(last)["model.architecture"] == "unet"
    assert shown["network"]["parameters"] == count
    assert "do not fit" in sentence(voxloom("weights", "show", last, "--architecture", "monai_unet", check=False), 1)
    voxloom("weights", "show", last, "--json", "--output", tmp_path / "list.json")
    assert json.loads((tmp_path / "list.json").read_text())["tensors"] == shown["tensors"]
    voxloom("weights", "export", last)  # beside it
    assert last.with_suffix(".pt").is_file()
    assert "overwritten" in sentence(voxloom("weights", "export", last.with_suffix(".pt"), check=False), 1)
    assert "weights import" in sentence(voxloom("predict", last.with_suffix(".pt"), "x.tif", "--output", "x", check=False), 1)
    odd = ["--output", tmp_path / "odd.safetensors", "data.root=" + os.fsdecode(b"M\xfcller")]
    assert "data.root" in sentence(voxloom("weights", "import", last, *odd, check=False, errors="replace"), 1)


def test_forward_refuses_what_it_cannot_compute(voxloom, draw, tmp_path):
    recipe = write_training(tmp_path, draw)
    voxloom("train", recipe, "--run", tmp_path / "run", "training.max_epochs=1")
    last = checkpoint(tmp_path / "run")
    np.save(tmp_path / "none.npy", np.zeros((0, 1, 16, 16, 16), np.float32))
    np.save(tmp_path / "in.npy", np.zeros((1, 1, 16, 16, 16), np.float32))
    out = tmp_path / "out.npy"
    assert "no values" in sentence(voxloom("weights", "forward", last, tmp_path / "none.npy", out, check=False), 1)
    assert "cuda:N" in sentence(voxloom("weights", "forward", last, tmp_path / "in.npy", out, "--device", "x", check=False), 1)
    assert "--device cuda:99" in sentence(
        voxloom("weights", "forward", last, tmp_path / "in.npy", out, "--device", "cuda:99", check=False), 1)


def test_one_broken_run_hides_no_other(voxloom, draw, tmp_path):
    recipe = write_training(tmp_path, draw)
    voxloom("train", recipe, "training.max_epochs=1", cwd=tmp_path)
    (tmp_path / "runs" / "cut").mkdir()
    (tmp_path / "runs" / "cut" / "run.json").write_text("{")
    result = voxloom("status", "--json", cwd=tmp_path)
    assert [one["run"] for one in json.loads(result.stdout)] == ["runs/recipe-001"]
    assert "cut/run.json" in result.stderr
    assert "JSON" in sentence(voxloom("status", "runs/cut", check=False, cwd=tmp_path), 1)


def test_a_volume_is_written_beside_others_of_a_file(voxloom, tmp_path, draw):
    h5py, zarr = pytest.importorskip("h5py"), pytest.importorskip("zarr")
    generator = np.random.default_rng(draw.randrange(2**32))
    volumes = [generator.integers(0, 255, (5, 6, 7), dtype=np.uint8) for _ in range(3)]
    for number, volume in enumerate(volumes):
        np.save(tmp_path / f"{number}.npy", volume)
    for suffix, opened in (("h5", h5py.File), ("zarr", zarr.open_group)):
        name = tmp_path / f"all.{suffix}"
        voxloom("convert", tmp_path / "0.npy", f"{name}:raw")
        voxloom("convert", tmp_path / "1.npy", f"{name}:labels/fine")
        voxloom("convert", tmp_path / "2.npy", f"{name}:raw")  # in place of the first
        with_both = opened(name, mode="r")
        assert np.array_equal(with_both["raw"][:], volumes[2]) and np.array_equal(with_both["labels/fine"][:], volumes[1])
        assert json.loads(voxloom("inspect", f"{name}:labels/fine", "--json").stdout)["shape"] == [5, 6, 7]
        for wrong in ("labels", "raw/inner") if suffix == "h5" else ("../out", "raw/inner"):
            sentence(voxloom("convert", tmp_path / "0.npy", f"{name}:{wrong}", check=False), 1)
        assert np.array_equal(opened(name, mode="r")["labels/fine"][:], volumes[1])
        assert sorted(path.name for path in tmp_path.iterdir() if path.suffix == ".part") == []
    assert "leave out" in sentence(voxloom("convert", tmp_path / "0.npy", tmp_path / "a.tif:raw", check=False), 1)


def test_bench_alone_measures_what_needs_no_files(voxloom):
    rows = json.loads(voxloom("bench", "--json").stdout)
    assert {"augment", "dice", "step"} <= {row["name"] for row in rows}
    assert all(row["median_ms"] > 0 and row["spread_ms"] >= 0 for row in rows)
