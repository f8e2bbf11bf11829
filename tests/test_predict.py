"""Prediction of whole volumes: against MONAI's sliding window, and what is written."""
import json
import random
import subprocess

import h5py
import numpy as np
import pytest
import tifffile
import torch
from conftest import PROGRAM
from inference import windows
from test_train import peer_network, plain_network
from training import checkpoint, metadata, tensors, write_training


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("predict")
    recipe = write_training(folder, random.Random(3))
    subprocess.run([PROGRAM, "train", recipe, "--run", folder / "run", "training.max_epochs=2"], check=True,
                   capture_output=True)
    return folder


def peer_probabilities(trained, volume, overlap, window=16):
    """Every window by nnU-Net's network, blended by a gaussian in double precision, one voxel at a time in spirit."""
    weights = {name[6:]: torch.from_numpy(values) for name, values in tensors(checkpoint(trained / "run", "best")).items()
               if name.startswith("model.")}
    network = peer_network(weights, [4, 8]).eval()
    image = (volume.astype(np.float64) - volume.mean()) / volume.std()
    bell = np.exp(-0.5 * ((np.arange(window) - (window - 1) / 2) / (window / 8)) ** 2)
    bell = np.maximum(bell[:, None, None] * bell[None, :, None] * bell, 1e-3)

    total, weight = np.zeros(image.shape), np.zeros(image.shape)
    for here in windows(image.shape, [window] * 3, overlap):
        with torch.no_grad():
            logits = network(torch.from_numpy(image[here])[None, None].float())[0, 0].double().numpy()
        total[here] += bell * logits
        weight[here] += bell
    return 1 / (1 + np.exp(-total / weight))


@pytest.mark.parametrize("overlap", [0.5, 0.25])
def test_windows_are_blended_as_the_formula_says(trained, voxloom, tmp_path, overlap):
    volume = np.load(trained / "images" / "case_002.npy")
    voxloom("predict", trained / "run", trained / "images" / "case_002.npy", "--output", tmp_path, "--probabilities",
            "--overlap", overlap)
    ours = tifffile.imread(tmp_path / "case_002.tif")
    assert ours.dtype == np.float32 and ours.shape == volume.shape
    assert np.abs(ours - peer_probabilities(trained, volume, overlap)).max() < 1e-3


def test_labels_are_the_thresholded_probabilities(trained, voxloom, tmp_path):
    arguments = ["predict", checkpoint(trained / "run"), trained / "images" / "case_001.npy", "--output"]
    voxloom(*arguments, tmp_path / "p", "--probabilities")
    probabilities = tifffile.imread(tmp_path / "p" / "case_001.tif")
    for threshold in (0.5, 0.2, 0.8):
        voxloom(*arguments, tmp_path / str(threshold), "--threshold", threshold)
        labels = tifffile.imread(tmp_path / str(threshold) / "case_001.tif")
        assert labels.dtype == np.uint8
        clear = np.abs(probabilities - threshold) > 1e-5
        assert np.array_equal(labels[clear], (probabilities > threshold)[clear])


def test_a_volume_smaller_than_the_window_keeps_its_size(trained, voxloom, tmp_path):
    np.save(tmp_path / "small.npy", np.load(trained / "images" / "case_000.npy")[:5, :, :9])
    voxloom("predict", trained / "run", tmp_path / "small.npy", "--output", tmp_path)
    assert tifffile.imread(tmp_path / "small.tif").shape == (5, 26, 9)


def test_a_window_may_be_that_of_training_along_some_axes(trained, voxloom, tmp_path):
    for window in ("auto,8,24", "16,8,24"):
        voxloom("predict", trained / "run", trained / "images" / "case_000.npy", "--output", tmp_path / window,
                "--probabilities", f"inference.window={window}", "inference.format=npy")
    first, second = (np.load(tmp_path / window / "case_000.npy") for window in ("auto,8,24", "16,8,24"))
    assert np.array_equal(first, second)


def test_spacing_goes_with_the_prediction(trained, voxloom, tmp_path):
    import nibabel
    volume = np.load(trained / "images" / "case_000.npy")
    affine = np.diag([0.5, 0.75, 2.0, 1.0])
    nibabel.save(nibabel.Nifti1Image(volume.transpose(2, 1, 0), affine), tmp_path / "scan.nii.gz")
    voxloom("predict", trained / "run", tmp_path / "scan.nii.gz", "--output", tmp_path)
    import json
    told = json.loads(voxloom("inspect", tmp_path / "scan.tif", "--json").stdout)
    assert told["spacing"] == pytest.approx([2.0, 0.75, 0.5])
    np.save(tmp_path / "plain.npy", volume)
    voxloom("predict", trained / "run", tmp_path / "plain.npy", "--output", tmp_path)
    assert np.array_equal(tifffile.imread(tmp_path / "plain.tif"), tifffile.imread(tmp_path / "scan.tif"))


@pytest.mark.parametrize("arguments, words", [
    (["missing.npy"], "missing.npy"),
    ([], "--split"),
    (["--split", "nothing"], "train, validation or test"),
    (["{trained}/images"], "images/*.npy"),
    (["{trained}/images/case_000.npy", "inference.submission=openkbp", "data.target=regression"], "possible_dose_mask"),
    (["{trained}/images/case_000.npy", "--overlap", "1"], "--overlap is 1"),
    (["{trained}/images/case_000.npy", "--threshold", "0.4", "inference.postprocess=[{{name: hysteresis}}]"], "hysteresis"),
])
def test_wrong_input_is_one_clear_sentence(trained, voxloom, tmp_path, arguments, words):
    arguments = [text.format(trained=trained) for text in arguments]
    result = voxloom("predict", trained / "run", *arguments, "--output", tmp_path / "out", check=False)
    assert result.returncode == 1 and words in result.stderr and not (tmp_path / "out").exists()
    assert voxloom("predict", tmp_path / "no-run", "a.npy", "--output", tmp_path, check=False).returncode == 1


@pytest.mark.parametrize("suffix", ["tif", "h5"])
def test_a_prediction_never_replaces_what_it_is_made_from(trained, voxloom, tmp_path, suffix):
    volume, scan = np.load(trained / "images" / "case_000.npy"), tmp_path / f"scan.{suffix}"
    if suffix == "tif":
        tifffile.imwrite(scan, volume)
    else:
        with h5py.File(scan, "w") as file:
            file["raw"], file["label"] = volume, volume > 0
    before = scan.read_bytes()
    named = scan if suffix == "tif" else f"{scan}:raw"
    refused = voxloom("predict", trained / "run", named, "--output", tmp_path, f"inference.format={suffix}", check=False)
    assert refused.returncode == 1 and "would replace" in refused.stderr and "--output" in refused.stderr
    assert scan.read_bytes() == before
    label = (trained / "labels" / "case_002.npy").read_bytes()
    refused = voxloom("predict", trained / "run", "--split", "validation", "--output", trained / "labels",
                      "inference.format=npy", check=False)
    assert refused.returncode == 1 and "case_002" in refused.stderr
    assert (trained / "labels" / "case_002.npy").read_bytes() == label


@pytest.mark.parametrize("suffix", ["h5", "zarr"])
def test_a_dataset_is_written_beside_others_and_replaces_none_that_is_read(trained, voxloom, tmp_path, suffix):
    scan = tmp_path / f"scan.{suffix}"
    voxloom("convert", trained / "images" / "case_000.npy", f"{scan}:em/raw")
    common = ["predict", trained / "run", f"{scan}:em/raw", "--output", tmp_path]
    for dataset in ("em/raw", "em"):
        refused = voxloom(*common, f"inference.format={suffix}:{dataset}", check=False)
        assert refused.returncode == 1 and "would replace" in refused.stderr, dataset
    voxloom(*common, f"inference.format={suffix}:labels/cells")
    assert [path.name for path in tmp_path.iterdir()] == [scan.name]
    plain = trained / "images" / "case_000.npy"
    voxloom("predict", trained / "run", plain, "--output", tmp_path, "inference.format=npy")
    for dataset, expected in (("em/raw", plain), ("labels/cells", tmp_path / "case_000.npy")):
        voxloom("convert", f"{scan}:{dataset}", tmp_path / "back.npy")
        assert np.array_equal(np.load(tmp_path / "back.npy"), np.load(expected)), dataset


def test_what_lies_outside_is_what_training_saw_there(trained, voxloom, tmp_path):
    np.save(tmp_path / "small.npy", np.load(trained / "images" / "case_000.npy")[:7, :, :9])
    told = {}
    for padding in ("none", "constant", "edge"):
        voxloom("predict", trained / "run", tmp_path / "small.npy", "--output", tmp_path / padding, "--probabilities",
                f"data.padding={padding}", "data.pad_value=3")
        told[padding] = tifffile.imread(tmp_path / padding / "small.tif")
    assert np.array_equal(told["none"], told["constant"]) and not np.array_equal(told["none"], told["edge"])


def test_a_folder_is_called_by_its_name_however_it_is_written(trained, voxloom, tmp_path):
    write_zarr = ["convert", trained / "images" / "case_000.npy", tmp_path / "a=1" / "scan.zarr"]
    voxloom(*write_zarr)
    for name in (f"{tmp_path}/a=1/scan.zarr/", f"{tmp_path}/a=1/scan.zarr/."):
        voxloom("predict", trained / "run", name, "--output", tmp_path / "out")
        assert [path.name for path in (tmp_path / "out").iterdir()] == ["scan.tif"]
        (tmp_path / "out" / "scan.tif").unlink()


def test_a_volume_may_have_an_equals_sign_in_its_name(trained, voxloom, tmp_path):
    with h5py.File(tmp_path / "lr=0.1.h5", "w") as file:
        file["raw"] = np.load(trained / "images" / "case_000.npy")
    voxloom("predict", trained / "run", f"{tmp_path}/lr=0.1.h5:raw", "--output", tmp_path / "out")
    assert (tmp_path / "out" / "lr=0.1.tif").exists()
    channels = f"{tmp_path}/lr=0.1.h5:raw,{tmp_path}/lr=0.1.h5:raw"
    result = voxloom("predict", trained / "run", channels, "--output", tmp_path / "out", check=False)
    assert result.returncode == 1 and "takes 1 channels" in result.stderr


def test_cases_of_one_name_are_not_submitted_together(trained, voxloom, tmp_path):
    cases = ", ".join(f"{{id: {scroll}/5, images: [images/case_00{number}.npy], label: labels/case_00{number}.npy, "
                      "split: test}" for number, scroll in enumerate(("s1", "s2")))
    result = voxloom("predict", trained / "run", "--split", "test", "--output", tmp_path / "out", f"data.cases=[{cases}]",
                     "data.split=column", "inference.submission=vesuvius", check=False)
    assert result.returncode == 1 and "s1/5.tif" in result.stderr and "s2/5.tif" in result.stderr
    assert not (tmp_path / "out").exists()


def test_a_network_that_gives_nan_predicts_nothing(voxloom, tmp_path):
    network = plain_network([4, 8]).eval()
    with torch.no_grad():
        next(network.parameters())[0] = float("nan")
    torch.save(network.state_dict(), tmp_path / "nan.pt")
    voxloom("weights", "import", tmp_path / "nan.pt", "--output", tmp_path / "nan.safetensors", "data.preprocess=[]")
    np.save(tmp_path / "scan.npy", np.random.default_rng(1).normal(size=(16, 16, 16)).astype(np.float32))
    for how in ([], ["--probabilities"]):
        result = voxloom("predict", tmp_path / "nan.safetensors", tmp_path / "scan.npy", "--output", tmp_path / "out",
                         "inference.window=16", *how, check=False)
        assert result.returncode == 1 and "gives NaN" in result.stderr and "scan" in result.stderr
        assert not list((tmp_path / "out").iterdir())  # nor anything to go on from


def test_nothing_is_staged_to_be_read_once(trained, voxloom, tmp_path):
    voxloom("predict", trained / "run", trained / "images" / "case_000.npy", "--output", tmp_path / "out",
            f"data.stage_dir={tmp_path}/stage")
    assert not list((tmp_path).glob("stage/**/*.npy"))


def test_the_validation_split_is_predicted(trained, voxloom, tmp_path):
    voxloom("predict", trained / "run", "--split", "validation", "--output", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["case_002.tif"]
    result = voxloom("train", trained / "recipe.yaml", "--run", trained / "run", "--predict-only")
    assert "predictions" in result.stdout and "note" not in result.stderr
    assert np.array_equal(tifffile.imread(trained / "run" / "predictions" / "case_002.tif"),
                          tifffile.imread(tmp_path / "case_002.tif"))
    changed = tmp_path / "changed.yaml"
    changed.write_text((trained / "recipe.yaml").read_text() + "inference: {threshold: 0.1}\n")
    said = voxloom("train", changed, "--run", trained / "run", "--predict-only", "inference.format=npy").stderr
    assert "inference.threshold is 0.1 in the recipe" in said and "inference.format" not in said
    assert np.array_equal(np.load(trained / "run" / "predictions" / "case_002.npy"),
                          tifffile.imread(tmp_path / "case_002.tif"))


def test_bad_cases_of_a_split_are_left_out_where_training_left_them_out(trained, voxloom, tmp_path):
    image = np.load(trained / "images" / "case_000.npy").astype(np.float32)
    image[3, 4, 5] = np.nan  # its header is in order
    np.save(trained / "hole.npy", image)
    cases = ("[{id: gone, images: [gone.npy], split: test}, {id: hole, images: [hole.npy], split: test}, "
             "{id: here, images: [images/case_000.npy], split: test}]")
    common = ["predict", trained / "run", "--split", "test", "--output", tmp_path, f"data.cases={cases}", "data.split=column"]
    said = voxloom(*common, "data.on_bad_case=skip").stderr
    assert "case gone is left out" in said and "case hole is left out" in said and "z=3 y=4 x=5" in said
    assert [path.name for path in tmp_path.iterdir()] == ["here.tif"]
    refused = voxloom(*common, check=False)
    assert refused.returncode == 1 and "gone.npy" in refused.stderr
    volume = voxloom("predict", trained / "run", "gone.npy", "--output", tmp_path, "data.on_bad_case=skip", check=False)
    assert volume.returncode == 1 and "gone.npy" in volume.stderr  # whoever names it means it


def test_what_training_left_out_is_left_out_of_its_splits(voxloom, draw, tmp_path):
    recipe = write_training(tmp_path, draw, "inference: {format: npy}\n")
    image = np.load(tmp_path / "images" / "case_001.npy").astype(np.float32)
    image[3, 4, 5] = np.nan  # its header is in order
    np.save(tmp_path / "images" / "case_001.npy", image)
    run = tmp_path / "run"
    voxloom("train", recipe, "--run", run, "data.on_bad_case=skip", "training.max_epochs=1", "training.iterations_per_epoch=1")
    said = voxloom("predict", run, "--split", "train", "--output", tmp_path / "out").stderr
    assert "case case_001 is left out, as data.on_bad_case says" in said
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["case_000.npy"]


def test_a_word_too_long_for_a_file_is_a_word_like_others(trained, voxloom, tmp_path):
    chain = "inference.postprocess=[{name: threshold}" + ", {name: fill_holes}" * 12 + "]"
    assert len(chain) > 255
    image = trained / "images" / "case_000.npy"
    voxloom("predict", trained / "run", image, chain, "--output", tmp_path)
    assert (tmp_path / "case_000.tif").exists()
    for words in (["predict", 300 * "v", image, "--output", tmp_path],
                  ["train", trained / "recipe.yaml", "data.nothing=" + 300 * "v"],
                  ["profile", trained / "recipe.yaml", "data.nothing=" + 300 * "v"],
                  ["tune", trained / "recipe.yaml", "data.nothing=" + 300 * "v"],
                  ["init", 300 * "v", "--output", tmp_path / "recipe.yaml"]):
        result = voxloom(*words, check=False)
        assert result.returncode == 1 and "mistake" not in result.stderr, words[0]


def test_weights_without_statistics_of_their_data_set_ask_for_them(voxloom, tmp_path):
    torch.save(plain_network([4, 8]).state_dict(), tmp_path / "net.pt")
    voxloom("weights", "import", tmp_path / "net.pt", "--output", tmp_path / "net.safetensors", "data.target=regression",
            "data.preprocess=[{name: zscore, scope: dataset}]")
    volume = np.random.default_rng(1).normal(size=(16, 16, 16)).astype(np.float32)
    np.save(tmp_path / "scan.npy", volume), np.save(tmp_path / "normalised.npy", (volume - 3) / 4)
    arguments = ["predict", tmp_path / "net.safetensors", "--output", tmp_path, "inference.window=16"]
    refused = voxloom(*arguments, tmp_path / "scan.npy", check=False)
    assert refused.returncode == 1 and "mean: [" in refused.stderr and not (tmp_path / "scan.tif").exists()
    voxloom(*arguments, tmp_path / "scan.npy", "data.preprocess=[{name: zscore, scope: dataset, mean: [3], std: [4]}]")
    voxloom(*arguments, tmp_path / "normalised.npy", "data.preprocess=[]")
    assert np.allclose(tifffile.imread(tmp_path / "scan.tif"), tifffile.imread(tmp_path / "normalised.tif"), atol=1e-4)


def test_input_is_normalised_by_the_statistics_of_the_training_cases(voxloom, draw, tmp_path):
    recipe = write_training(tmp_path, draw)
    run = tmp_path / "run"
    voxloom("train", recipe, "--run", run, "training.max_epochs=1", "training.iterations_per_epoch=3",
            "data.preprocess=[{name: zscore, scope: dataset}]")
    images = np.stack([np.load(tmp_path / "images" / f"case_{i:03d}.npy") for i in (0, 1)]).astype(np.float64)
    [[mean, deviation]] = json.loads(metadata(checkpoint(run))["input_statistics"])
    assert mean == pytest.approx(images.mean()) and deviation == pytest.approx(images.std())
    other = tmp_path / "other.npy"
    np.save(other, (3 * np.load(tmp_path / "images" / "case_002.npy").astype(np.float32) + 40))
    given = f"data.preprocess=[{{name: normalize, mean: {mean!r}, std: {deviation!r}}}]"
    for name, words in {"own": [], "given": [given]}.items():
        voxloom("predict", run, other, *words, "--output", tmp_path / name, "--probabilities")
        voxloom("convert", tmp_path / name / "other.tif", tmp_path / f"{name}.npy")
    own, told = np.load(tmp_path / "own.npy"), np.load(tmp_path / "given.npy")
    assert np.ptp(own) > 0 and np.abs(own - told).max() < 1e-5
