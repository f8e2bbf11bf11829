"""`convert --postprocess` against scipy, scikit-image and cc3d on random volumes."""
import numpy as np
import pytest
from scipy import ndimage


@pytest.fixture
def probabilities(draw):
    source = np.random.default_rng(draw.randrange(2**32))
    shape = [draw.randrange(20, 40) for _ in range(3)]
    smooth = ndimage.gaussian_filter(source.normal(size=shape), 1.5)
    return ((smooth - smooth.min()) / np.ptp(smooth)).astype(np.float32)


def process(voxloom, folder, values, spec):
    np.save(folder / "in.npy", values)
    voxloom("convert", folder / "in.npy", folder / "out.npy", "--postprocess", spec)
    result = np.load(folder / "out.npy")
    assert result.dtype == np.uint8 and result.shape == values.shape and set(np.unique(result)) <= {0, 1}
    return result > 0


def test_threshold_and_hysteresis_are_scikit_images(voxloom, draw, tmp_path, probabilities):
    filters = pytest.importorskip("skimage.filters")
    low = round(draw.uniform(0.3, 0.55), 3)
    high = round(draw.uniform(low, 0.8), 3)
    assert np.array_equal(process(voxloom, tmp_path, probabilities, f"[{{name: threshold, level: {low}}}]"), probabilities > low)
    ours = process(voxloom, tmp_path, probabilities, f"[{{name: hysteresis, low: {low}, high: {high}, connectivity: 6}}]")
    assert np.array_equal(ours, filters.apply_hysteresis_threshold(probabilities, low, high))


def test_small_pieces_and_holes_are_scipys(voxloom, draw, tmp_path, probabilities):
    cc3d = pytest.importorskip("cc3d")
    mask = (probabilities > 0.6).astype(np.uint8)
    connectivity, least = draw.choice([6, 18, 26]), draw.randrange(2, 200)
    labels = cc3d.connected_components(mask, connectivity=connectivity)
    sizes = np.bincount(labels.ravel())
    expected = (labels > 0) & (sizes[labels] >= least)
    spec = f"[{{name: remove_small, min_voxels: {least}, connectivity: {connectivity}}}]"
    assert np.array_equal(process(voxloom, tmp_path, mask, spec), expected)
    solid = (probabilities > 0.45).astype(np.uint8)
    assert np.array_equal(process(voxloom, tmp_path, solid, "[{name: fill_holes}]"), ndimage.binary_fill_holes(solid))


def test_balls_and_plugs_are_scipys(voxloom, draw, tmp_path, probabilities):
    radius = draw.choice([1, 1.5, 2.3])
    reach = np.arange(-3, 4)
    ball = (reach[:, None, None] ** 2 + reach[:, None] ** 2 + reach**2 <= radius**2)
    mask = np.pad(probabilities > 0.5, 6).astype(np.uint8)  # nothing near the border, beyond which nothing is known
    for name, theirs in (("close", ndimage.binary_closing), ("open", ndimage.binary_opening)):
        ours = process(voxloom, tmp_path, mask, f"[{{name: {name}, radius: {radius}}}]")
        assert np.array_equal(ours, theirs(mask, ball)), name
    rough = (np.random.default_rng(draw.randrange(2**32)).uniform(size=(18, 20, 22)) > 0.4).astype(np.uint8)
    plugged = rough > 0
    for plane in range(3):  # the four neighbours in the plane across this axis
        neighbours = np.zeros((3, 3, 3), bool)
        for axis in {0, 1, 2} - {plane}:
            for side in (0, 2):
                neighbours[tuple(side if a == axis else 1 for a in range(3))] = True
        plugged |= ndimage.binary_erosion(rough, neighbours)
    assert np.array_equal(process(voxloom, tmp_path, rough, "[{name: plug_holes}]"), plugged)
    assert plugged.sum() > rough.sum()


def test_a_chain_runs_in_its_order_and_bad_ones_are_refused(voxloom, tmp_path, probabilities):
    spec = "[{name: threshold, level: 0.55}, {name: fill_holes}, {name: keep_largest}]"
    filled = ndimage.binary_fill_holes(probabilities > 0.55)
    labels, _ = ndimage.label(filled, np.ones((3, 3, 3)))
    sizes = np.bincount(labels.ravel())[1:]
    assert np.array_equal(process(voxloom, tmp_path, probabilities, spec), labels == 1 + np.argmax(sizes))
    for spec, said in (("[{name: treshold}]", "threshold"), ("[{name: fill_holes}]", "begin with threshold"),
                       ("[{name: threshold, level: 2}]", "level")):
        result = voxloom("convert", tmp_path / "in.npy", tmp_path / "bad.npy", "--postprocess", spec, check=False)
        assert result.returncode == 1 and said in result.stderr and not (tmp_path / "bad.npy").exists()


def test_whole_numbers_with_a_scale_are_real_and_several_labels_are_told(voxloom, tmp_path, probabilities):
    import nibabel

    image = nibabel.Nifti1Image(np.rint(probabilities.T * 255).astype(np.uint8), np.eye(4))
    image.header.set_slope_inter(1 / 255, 0)
    nibabel.save(image, tmp_path / "p.nii")
    voxloom("convert", tmp_path / "p.nii", tmp_path / "p.npy", "--postprocess", "[{name: threshold, level: 0.401}]")
    assert np.array_equal(np.load(tmp_path / "p.npy") > 0, np.rint(probabilities * 255) > 0.401 * 255)
    labels = np.zeros((4, 5, 6), np.uint8)
    labels[1], labels[3] = 7, 9
    np.save(tmp_path / "labels.npy", labels)
    said = voxloom("convert", tmp_path / "labels.npy", tmp_path / "one.npy", "--postprocess", "[{name: fill_holes}]").stderr
    assert "such as 7 and 9" in said and np.array_equal(np.load(tmp_path / "one.npy"), labels > 0)


def test_training_refuses_steps_that_prediction_could_not_run(voxloom, draw, tmp_path):
    from training import write_training

    recipe = write_training(tmp_path, draw, "inference: {postprocess: [{name: threshold, levle: 0.5}]}\n")
    result = voxloom("train", recipe, "--dry-run", check=False)
    assert result.returncode == 1 and "levle" in result.stderr and "level" in result.stderr


def test_steps_that_do_not_fit_the_network_are_refused_before_anything_is_computed(voxloom, draw, tmp_path):
    from training import write_training

    recipe = write_training(tmp_path, draw, "inference: {postprocess: [{name: mutex_watershed}]}\n")
    result = voxloom("train", recipe, "--dry-run", "model.out_channels=2", check=False)
    assert result.returncode == 1 and "each channel needs its offset" in result.stderr


def test_what_prediction_would_refuse_is_refused_before_training_and_nothing_else(voxloom, draw, tmp_path):
    from training import write_training

    recipe = write_training(tmp_path, draw)
    apart = "[{name: bce, channels: [0]}, {name: bce, target: affinity, channels: [1, 2, 3]}]"
    voxloom("train", recipe, "--dry-run", "model.out_channels=4", f"loss.terms={apart}",
            "inference.postprocess=[{name: mutex_watershed}]")  # three offsets for as many affinities
    result = voxloom("train", recipe, "--dry-run", "model.out_channels=4", "loss.terms=[{name: cross_entropy}]",
                     "inference.postprocess=[{name: threshold}]", check=False)
    assert result.returncode == 1 and "the labels of one class" in result.stderr


def test_a_foreground_and_its_background_by_softmax_are_one_class(voxloom, draw, tmp_path):
    from inference import make_network, random_image

    network = make_network(tmp_path, "pair", 5, (4, 8), (1, 2))[1]
    np.save(tmp_path / "case.npy", random_image(draw, (12, 14, 16)))
    common = ["predict", network, tmp_path / "case.npy", "data.target=segmentation", "inference.window=16",
              "inference.format=npy"]
    voxloom(*common, "--output", tmp_path / "p", "--probabilities")
    probability = np.load(tmp_path / "p" / "case.npy")[1]
    values = np.sort(probability.ravel())[800:1900]
    gap = np.argmax(np.diff(values))  # a level that rounding does not reach
    level = (float(values[gap]) + float(values[gap + 1])) / 2
    chain = "inference.postprocess=[{name: threshold}, {name: remove_small, min_voxels: 30, connectivity: 6}]"
    said = voxloom(*common, "--output", tmp_path / "out", chain, "--threshold", level).stderr
    labels = np.load(tmp_path / "out" / "case.npy")
    pieces, _ = ndimage.label(probability > level)
    assert "note" not in said and labels.dtype == np.uint8
    assert np.array_equal(labels, (np.bincount(pieces.ravel())[pieces] >= 30) & (pieces > 0))


def test_prediction_takes_the_recipes_steps_and_mirrors(voxloom, draw, tmp_path):
    from training import write_training

    recipe = write_training(tmp_path, draw, "inference: {postprocess: [{name: threshold, level: 0.5}, {name: keep_largest}]}\n")
    run = tmp_path / "run"
    voxloom("train", recipe, "--run", run, "training.max_epochs=1", "training.iterations_per_epoch=15", "model.out_channels=1")
    image = tmp_path / "images" / "case_002.npy"
    outputs = {}
    for name, flags in {"labels": [], "plain": ["--probabilities"], "tta": ["--probabilities", "--tta"]}.items():
        voxloom("predict", run, image, "--output", tmp_path / name, *flags)
        voxloom("convert", tmp_path / name / "case_002.tif", tmp_path / f"{name}.npy")
        outputs[name] = np.load(tmp_path / f"{name}.npy")
    voxloom("predict", run, image, "--output", tmp_path / "level", "--threshold", "0.45",
            "inference.postprocess=[{name: threshold, level: 0.9}]", "inference.format=npy")
    assert np.array_equal(np.load(tmp_path / "level" / "case_002.npy") > 0, outputs["plain"] > 0.45)
    said = voxloom("predict", run, image, "--output", tmp_path / "level", "inference.threshold=0.45").stderr
    assert "inference.threshold=0.45 cuts nothing here: threshold" in said
    labels, count = ndimage.label(outputs["plain"] > 0.5, np.ones((3, 3, 3)))
    if count > 0:
        sizes = np.bincount(labels.ravel())[1:]
        assert np.array_equal(outputs["labels"] > 0, labels == 1 + np.argmax(sizes))
    assert not np.array_equal(outputs["plain"], outputs["tta"])
    # A mirrored volume, predicted with all mirrorings, is the mirrored prediction, up to the placing of windows.
    np.save(tmp_path / "flipped.npy", np.load(image)[::-1].copy())
    voxloom("predict", run, tmp_path / "flipped.npy", "--output", tmp_path / "f", "--probabilities", "--tta")
    voxloom("convert", tmp_path / "f" / "flipped.tif", tmp_path / "f.npy")
    assert np.abs(np.load(tmp_path / "f.npy")[::-1] - outputs["tta"]).max() < 1e-3
