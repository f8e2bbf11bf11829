"""voxloom evaluate against the referees: the challenge's values, scikit-image, MONAI, surface-distance, cc3d."""
import csv
import importlib.util
import json
import tarfile

import numpy as np
import pytest


def scores(voxloom, task, prediction, reference, *more):
    output = voxloom("evaluate", "--task", task, "--prediction", prediction, "--reference", reference, *more, "--json")
    return json.loads(output.stdout)


def numpy_source(draw):
    return np.random.default_rng(draw.randrange(2**32))


# ---- segmentation: distances of surfaces

def blobs(source, shape, classes=2):
    ndimage = pytest.importorskip("scipy.ndimage")
    smooth = ndimage.gaussian_filter(source.standard_normal(shape), 2)
    return np.digitize(smooth, np.quantile(smooth, np.linspace(0.6, 1, classes, endpoint=False))).astype(np.uint8)


@pytest.mark.parametrize("classes", [1, 3])
def test_hd95_and_mean_distance_are_monais(voxloom, draw, tmp_path, classes):
    nibabel = pytest.importorskip("nibabel")
    metrics = pytest.importorskip("monai.metrics")
    torch = pytest.importorskip("torch")
    source = numpy_source(draw)
    shape, spacing = tuple(source.integers(8, 26, 3)), source.uniform(0.5, 3, 3)
    volumes = {"p": blobs(source, shape, classes), "r": blobs(source, shape, classes)}
    for name, volume in volumes.items():
        nibabel.save(nibabel.Nifti1Image(volume.transpose(2, 1, 0), np.diag([*spacing[::-1], 1])), tmp_path / f"{name}.nii.gz")
    found = scores(voxloom, "segmentation", tmp_path / "p.nii.gz", tmp_path / "r.nii.gz")["mean"]
    one_hot = [torch.stack([torch.from_numpy(volumes[name] == label) for label in range(classes + 1)])[None] for name in "pr"]
    hd95 = metrics.compute_hausdorff_distance(*one_hot, percentile=95, spacing=list(spacing))[0].numpy()
    asd = metrics.compute_average_surface_distance(*one_hot, symmetric=True, spacing=list(spacing))[0].numpy()
    for label in range(1, classes + 1):
        assert found["classes"][str(label)]["hd95"] == pytest.approx(hd95[label - 1], rel=1e-5), label
        assert found["classes"][str(label)]["asd"] == pytest.approx(asd[label - 1], rel=1e-5), label
    assert found["hd95"] == pytest.approx(hd95.mean(), rel=1e-5)


# ---- dose: the challenge's evaluator

@pytest.fixture(scope="module")
def patients(tmp_path_factory):
    """The four validation patients of the reference, and its values."""
    from conftest import SHARED
    if not (SHARED / "data" / "openkbp").is_dir():
        pytest.skip("the folder of real data is not here")
    folder = tmp_path_factory.mktemp("openkbp")
    truth = json.loads((SHARED / "data" / "openkbp" / "reference_scores.json").read_text())
    wanted = tuple(f"validation-pats/{name}/" for name in truth["data"]["validation"])
    with tarfile.open(SHARED / "data" / "openkbp" / "openkbp-40train-8validation.tar.xz") as archive:
        for member in archive:
            if any(part in member.name for part in wanted) and not member.name.endswith("ct.csv"):
                archive.extract(member, folder, filter="data")
    return next(folder.rglob("validation-pats")), truth


def read_sparse(path):
    rows = np.loadtxt(path, delimiter=",", skiprows=1, ndmin=2)
    dense = np.zeros(128**3)
    dense[rows[:, 0].astype(int)] = rows[:, 1]
    return dense


def read_mask(path):
    dense = np.zeros(128**3, bool)
    dense[[int(line.split(",")[0]) for line in path.read_text().splitlines()[1:]]] = True
    return dense


def write_sparse(path, dense):
    (path).write_text(",data\n" + "".join(f"{i},{float(dense[i])!r}\n" for i in np.flatnonzero(dense)))


def make_prediction(kind, patient, truth):
    dose, mask = read_sparse(patient / "dose.csv"), read_mask(patient / "possible_dose_mask.csv")
    if kind == "zero":
        return np.zeros(128**3)
    if kind == "train_mean_constant":
        return truth["train_mean_constant_value_Gy"] * mask
    if kind == "ref_plus_1Gy":
        return (dose + 1.0) * mask
    if kind == "ref_times_0.95":
        return dose * 0.95 * mask
    if kind == "ref_rolled_1_2_3":
        return np.roll(dose.reshape(128, 128, 128), (1, 2, 3), (0, 1, 2)).ravel() * mask
    if kind == "ref_index_noise":
        return np.maximum(dose + (np.arange(128**3) % 7 - 3) * 0.5, 0) * mask
    raise KeyError(kind)


@pytest.mark.parametrize("kind", ["zero", "train_mean_constant", "ref_plus_1Gy", "ref_times_0.95", "ref_rolled_1_2_3",
                                  "ref_index_noise"])
def test_dose_equals_the_challenges_evaluator(voxloom, patients, tmp_path, kind):
    folder, truth = patients
    for name in truth["data"]["validation"]:
        write_sparse(tmp_path / f"{name}.csv", make_prediction(kind, folder / name, truth))
    found = scores(voxloom, "dose", tmp_path, folder)
    expected = truth["scores"]["validation"][kind]
    assert found["mean"]["dose_score"] == pytest.approx(expected["dose_score"], abs=1e-9)
    assert found["mean"]["dvh_score"] == pytest.approx(expected["dvh_score"], abs=1e-9)
    for name, of in expected["patients"].items():
        assert found["cases"][name]["dose_error"] == pytest.approx(of["dose_error"], abs=1e-9)
        structures = found["cases"][name]["structures"]
        points = {f"{s}/{p}": {side: structures[s][f"{p}_{side}"] for side in ("reference", "prediction")}
                  for s in structures for p in structures[s] if not p.endswith(("_prediction", "_reference"))}
        assert points.keys() == of["dvh"].keys()
        for point, values in of["dvh"].items():
            assert points[point] == pytest.approx(values, abs=1e-9), (name, point)


def test_a_dose_in_another_format_and_the_table(voxloom, patients, tmp_path):
    folder, _ = patients
    np.save(tmp_path / "pt_201.npy", read_sparse(folder / "pt_201" / "dose.csv").reshape(128, 128, 128))
    found = scores(voxloom, "dose", tmp_path / "pt_201.npy", folder / "pt_201")
    assert found["mean"]["dose_score"] == 0 and found["mean"]["dvh_score"] == 0
    assert scores(voxloom, "dose", folder, folder)["mean"]["dose_score"] == 0
    table = voxloom("evaluate", "--task", "dose", "--prediction", tmp_path / "pt_201.npy", "--reference", folder / "pt_201",
                    "--csv", tmp_path / "scores.csv").stdout
    assert "PTV70" in table and "D_0.1_cc" in table and "dvh_score" in table
    rows = list(csv.DictReader((tmp_path / "scores.csv").open()))
    assert [row["case"] for row in rows] == ["pt_201"] and float(rows[0]["PTV70.D_95_reference"]) == pytest.approx(64.5135)


def test_doses_that_cannot_be_scored_are_named(voxloom, patients, tmp_path):
    folder, _ = patients
    cases = {"no header\n1,2\n": ",data", ",data\n1,\n": "line 2", ",data\n1,2.0\n2097152,1.0\n": "line 3",
             ",data\n5,nan\n": "no number"}
    for text, expected in cases.items():
        (tmp_path / "pt_201.csv").write_text(text)
        result = voxloom("evaluate", "--task", "dose", "--prediction", tmp_path / "pt_201.csv", "--reference",
                         folder / "pt_201", check=False)
        assert result.returncode == 1 and expected in result.stderr and "pt_201.csv" in result.stderr, text
    np.save(tmp_path / "small.npy", np.zeros((4, 5, 6)))
    result = voxloom("evaluate", "--task", "dose", "--prediction", tmp_path / "small.npy", "--reference", folder / "pt_201",
                     check=False)
    assert result.returncode == 1 and "4x5x6" in result.stderr and "128x128x128" in result.stderr
    result = voxloom("evaluate", "--task", "dose", "--prediction", tmp_path / "small.npy", "--reference",
                     tmp_path / "small.npy", check=False)
    assert result.returncode == 1 and "dose.csv" in result.stderr


# ---- instances: scikit-image

def instance_precision(prediction, reference, threshold):
    """TP / (TP + FP + FN) from the IoU of every pair."""
    p, r = [np.unique(volume[volume > 0]) for volume in (prediction, reference)]
    iou = np.array([[np.sum((prediction == a) & (reference == b)) / np.sum((prediction == a) | (reference == b)) for b in r] for a in p])
    matched = int((iou.reshape(len(p), len(r)) > threshold).any(axis=1).sum())
    return matched / (len(p) + len(r) - matched), (iou * (iou > 0.5)).sum() / ((len(p) + len(r)) / 2)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.int32, np.float32])
def test_instances_agree_with_scikit_image(voxloom, draw, tmp_path, dtype):
    metrics = pytest.importorskip("skimage.metrics")
    ndimage = pytest.importorskip("scipy.ndimage")
    source = numpy_source(draw)
    reference = ndimage.label(blobs(source, tuple(source.integers(10, 30, 3)), 1))[0]
    prediction = np.where(source.random(reference.shape) < 0.1, 0, ndimage.grey_dilation(reference, 3)) % 200
    prediction[: reference.shape[0] // 2][reference[: reference.shape[0] // 2] > 3] = 3
    np.save(tmp_path / "p.npy", prediction.astype(dtype)), np.save(tmp_path / "r.npy", reference.astype(np.uint16))
    found = scores(voxloom, "instances", tmp_path / "p.npy", tmp_path / "r.npy")["mean"]
    split, merge = metrics.variation_of_information(reference, prediction)
    assert found["voi_split"] == pytest.approx(split, abs=1e-9) and found["voi_merge"] == pytest.approx(merge, abs=1e-9)
    assert found["are"] == pytest.approx(metrics.adapted_rand_error(reference, prediction)[0], abs=1e-9)
    precision, quality = instance_precision(prediction, reference, 0.75 - 1e-9)
    assert found["ap75"] == pytest.approx(precision) and found["pq"] == pytest.approx(quality)


def test_instances_that_are_no_labels_are_refused(voxloom, tmp_path):
    np.save(tmp_path / "r.npy", np.ones((3, 4, 5), np.uint8))
    for name, value in {"half": 0.5, "negative": -1.0, "nan": np.nan}.items():
        np.save(tmp_path / f"{name}.npy", np.full((3, 4, 5), value, np.float32))
        result = voxloom("evaluate", "--task", "instances", "--prediction", tmp_path / f"{name}.npy", "--reference",
                         tmp_path / "r.npy", check=False)
        assert result.returncode == 1 and "no label" in result.stderr and f"{name}.npy" in result.stderr


# ---- surface: the competition's score

def masks_by_formula(shared):
    path = shared / "data" / "surface" / "make_masks.py"
    if not path.is_file():
        pytest.skip("the formulas of the masks are not here")
    spec = importlib.util.spec_from_file_location("make_masks", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module, json.loads((path.parent / "reference_scores.json").read_text())["cases"]


def test_surface_equals_every_reference_score(voxloom, shared, tmp_path):
    module, cases = masks_by_formula(shared)
    folders = tmp_path / "p", tmp_path / "g"
    for folder in folders:
        folder.mkdir()
    for name, truth in cases.items():
        for folder, mask, key in zip(folders, module.build(name), ("sha256_pred", "sha256_gt")):
            assert module.sha(mask) == truth[key]
            np.save(folder / f"{name}.npy", mask)
    found = scores(voxloom, "surface", *folders)["cases"]
    assert found.keys() == cases.keys() and len(cases) == 21
    for name, truth in cases.items():
        of = found[name]
        assert [[of["betti"][str(k)][side] for side in "mpg"] for k in range(3)] == truth["mpg_sum"], name
        for ours, theirs in {"score": "leaderboard_score", "topo": "topo", "surface_dice": "surface_dice", "voi": "voi_score"}.items():
            assert of[ours] == pytest.approx(truth[theirs], abs=1e-12), (name, ours)
        for ours, theirs in {"voi_bits": "voi_total_bits", "voi_split": "voi_H_pred_given_gt_bits",
                             "voi_merge": "voi_H_gt_given_pred_bits"}.items():
            assert of[ours] == pytest.approx(truth[theirs], rel=1e-9, abs=1e-12), (name, ours)


def test_surface_dice_and_voi_are_the_packages(voxloom, draw, tmp_path):
    surface_distance = pytest.importorskip("surface_distance")
    cc3d = pytest.importorskip("cc3d")
    metrics = pytest.importorskip("skimage.metrics")
    source = numpy_source(draw)
    for _ in range(4):
        shape = tuple(source.integers(3, 40, 3))
        masks = [source.random(shape) < density for density in source.uniform(0.005, 0.3, 2)]
        masks[0] |= blobs(source, shape) > 1
        np.save(tmp_path / "p.npy", masks[0].astype(np.uint8)), np.save(tmp_path / "r.npy", masks[1].astype(np.uint8))
        found = scores(voxloom, "surface", tmp_path / "p.npy", tmp_path / "r.npy")["mean"]
        if masks[0].any() and masks[1].any():
            distances = surface_distance.compute_surface_distances(masks[1], masks[0], (1, 1, 1))
            assert found["surface_dice"] == pytest.approx(surface_distance.compute_surface_dice_at_tolerance(distances, 2.0), abs=1e-6)
        either = masks[0] | masks[1]
        if either.any():
            p, r = [cc3d.connected_components(mask, connectivity=26)[either].astype(np.int64) for mask in masks]
            split, merge = metrics.variation_of_information(r, p)
            assert found["voi_split"] == pytest.approx(split, abs=1e-6) and found["voi_merge"] == pytest.approx(merge, abs=1e-6)


def test_the_ignore_label_of_surface_is_2_unless_said(voxloom, tmp_path):
    reference = np.zeros((12, 12, 12), np.uint8)
    reference[4] = 1
    prediction = reference.copy()
    reference[8:] = 2
    prediction[9] = 1
    np.save(tmp_path / "p.npy", prediction), np.save(tmp_path / "r.npy", reference)
    assert scores(voxloom, "surface", tmp_path / "p.npy", tmp_path / "r.npy")["mean"]["score"] == pytest.approx(1)
    assert scores(voxloom, "surface", tmp_path / "p.npy", tmp_path / "r.npy", "--ignore-label", 7)["mean"]["score"] < 0.99


@pytest.mark.parametrize("task", ["segmentation", "surface", "instances"])
def test_probabilities_are_no_mask(voxloom, draw, tmp_path, task):
    mask = np.random.default_rng(draw.randrange(2**32)).integers(0, 2, (6, 7, 8))
    np.save(tmp_path / "r.npy", mask.astype(np.uint8)), np.save(tmp_path / "p.npy", (0.1 + 0.8 * mask).astype(np.float32))
    nibabel = pytest.importorskip("nibabel")
    scaled = nibabel.Nifti1Image(255 * mask.astype(np.uint8).T, np.eye(4))
    scaled.header.set_slope_inter(1 / 255, 0)  # a mask all the same: 0 and nearly 1
    nibabel.save(scaled, tmp_path / "scaled.nii")
    result = voxloom("evaluate", "--task", task, "--prediction", tmp_path / "p.npy", "--reference", tmp_path / "r.npy", check=False)
    assert result.returncode == 1 and "p.npy: holds the value 0." in result.stderr
    assert task != "surface" or scores(voxloom, task, tmp_path / "scaled.nii", tmp_path / "r.npy")["mean"]["score"] == pytest.approx(1)


@pytest.mark.parametrize("task", ["segmentation", "surface", "instances"])
def test_volumes_that_differ_or_hold_nan_are_refused(voxloom, tmp_path, task):
    np.save(tmp_path / "r.npy", np.ones((3, 4, 5), np.uint8)), np.save(tmp_path / "p.npy", np.ones((3, 4, 6), np.uint8))
    np.save(tmp_path / "nan.npy", np.full((3, 4, 5), np.nan, np.float32))
    result = voxloom("evaluate", "--task", task, "--prediction", tmp_path / "p.npy", "--reference", tmp_path / "r.npy", check=False)
    assert result.returncode == 1 and "3x4x6" in result.stderr and "3x4x5" in result.stderr
    result = voxloom("evaluate", "--task", task, "--prediction", tmp_path / "nan.npy", "--reference", tmp_path / "r.npy", check=False)
    assert result.returncode == 1 and "nan" in result.stderr.lower() and "nan.npy" in result.stderr
