"""Losses against other people's: one logged step, its batch and its weights exported, and the same terms in Python."""
import random
import subprocess

import numpy as np
import pytest
import torch
from scipy import ndimage

from conftest import PROGRAM
from training import rows, write_training

monai_losses = pytest.importorskip("monai.losses")

TERMS = """
loss:
  terms:
    - {name: dice, smooth: 1.0e-5}
    - {name: tversky, alpha: 0.3, beta: 0.7}
    - {name: focal, gamma: 1.5}
    - {name: cldice, iterations: 3, erosion: cross}
    - {name: morph_skeleton, iterations: 3, erosion: cube}
    - {name: erosion_consistency}
    - {name: surface_distance, tau: 2}
    - {name: boundary, limit: 6}
    - {name: hausdorff_dt, alpha: 2, limit: 100}
    - {name: skeleton_recall}
    - {name: topology, dimensions: [0, 1, 2], every: 1}
    - {name: bce, target: boundary}
    - {name: smooth_l1, target: signed_distance}
"""


@pytest.fixture(scope="module")
def step(tmp_path_factory):
    """The first step of a run: logits, label, exported targets and the logged value of each term."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    folder = tmp_path_factory.mktemp("losses")
    recipe = write_training(folder, random.Random(seed), TERMS)
    run, batches = folder / "run", folder / "batches"
    overrides = ["training.max_epochs=1", "training.iterations_per_epoch=1", "monitor.log_every=1", "training.lr=1e-12",
                 "training.warmup_steps=0", "model.out_channels=1", "data.ignore_label=-1", "validation.every=0", "training.seed=" + str(seed % 1000)]
    for command in (["train", recipe, "--run", run, "--export-batches", batches, *overrides],
                    ["weights", "forward", batches / "weights.safetensors", batches / "0.image.npy", folder / "logits.npy",
                     "architecture=unet", "in_channels=1", "out_channels=1", "filters=4,8"]):
        result = subprocess.run([str(PROGRAM), *map(str, command)], capture_output=True, text=True)
        assert result.returncode == 0, result.stderr
    arrays = {path.name.split(".", 1)[1][:-4]: np.load(path) for path in batches.glob("0.*.npy")}
    return {"logits": torch.from_numpy(np.load(folder / "logits.npy")), "label": (arrays["label"] > 0).astype(np.uint8),
            "arrays": arrays, "logged": rows(run)[0]}


def logged(step, name):
    return float(step["logged"]["loss." + name])


def p_and_y(step):
    return torch.sigmoid(step["logits"]), torch.from_numpy(step["label"]).float()


def test_regions_are_monais(step):
    y = p_and_y(step)[1]
    dice = monai_losses.DiceLoss(sigmoid=True, smooth_nr=1e-5, smooth_dr=1e-5)
    assert logged(step, "dice") == pytest.approx(dice(step["logits"], y).item(), rel=1e-4)
    tversky = monai_losses.TverskyLoss(sigmoid=True, alpha=0.3, beta=0.7, smooth_nr=1e-5, smooth_dr=1e-5)
    assert logged(step, "tversky") == pytest.approx(tversky(step["logits"], y).item(), rel=1e-4)
    focal = monai_losses.FocalLoss(gamma=1.5)
    assert logged(step, "focal") == pytest.approx(focal(step["logits"], y).item(), rel=1e-4)


def test_cldice_has_monais_skeletons(step):
    soft_skel = pytest.importorskip("monai.losses.cldice").soft_skel
    p, y = p_and_y(step)
    values = []
    for one_p, one_y in zip(p.split(1), y.split(1)):
        of_p, of_y = soft_skel(one_p, 3), soft_skel(one_y, 3)
        precision = ((of_p * one_y).sum() + 1) / (of_p.sum() + 1)
        recall = ((of_y * one_p).sum() + 1) / (of_y.sum() + 1)
        values.append((1 - 2 * precision * recall / (precision + recall)).item())
    assert logged(step, "cldice") == pytest.approx(np.mean(values), rel=1e-4)


def pool(x, width=3):
    return torch.nn.functional.max_pool3d(x, width, 1, width // 2)


def baseline_skeleton(x):
    skeleton = 0
    for _ in range(3):
        eroded = -pool(-x)
        skeleton = skeleton + torch.relu(torch.relu(x - pool(eroded)) - skeleton)
        x = eroded
    return skeleton


def test_the_baselines_morphology(step):
    p, y = p_and_y(step)
    assert logged(step, "morph_skeleton") == pytest.approx(
        (baseline_skeleton(p) - baseline_skeleton(y)).abs().mean().item(), rel=1e-4)
    a, b = -pool(-p, 5), -pool(-y, 5)
    gaps = torch.relu(0.2 - a).mean() - torch.relu(0.2 - b).mean()
    assert logged(step, "erosion_consistency") == pytest.approx(((a - b).abs().mean() + gaps.abs()).item(), rel=1e-4)


def distance(mask):
    """To the nearest voxel of the mask, of each sample; huge where there is none."""
    return np.stack([ndimage.distance_transform_edt(1 - one) if one.any() else np.full(one.shape, 1e3) for one in mask])


def test_distances_are_scipys(step):
    p, y = (array.numpy()[:, 0].astype(float) for array in p_and_y(step))
    outside, inside = distance(y), distance(1 - y)
    expected = (np.minimum(outside / 2, 1) * p + np.minimum(inside / 2, 1) * (y - p * y)).mean()
    assert logged(step, "surface_distance") == pytest.approx(expected, rel=1e-4)
    expected = (p * (np.minimum(outside, 6) - np.minimum(inside, 6))).mean()
    assert logged(step, "boundary") == pytest.approx(expected, rel=1e-3, abs=1e-5)
    weight = 0
    for mask in (p > 0.5, y > 0.5):
        either = np.minimum(distance(mask), 100) + np.minimum(distance(1 - mask), 100)
        weight = weight + either**2 * mask.any(axis=(1, 2, 3), keepdims=True)
    assert logged(step, "hausdorff_dt") == pytest.approx(((p - y) ** 2 * weight).mean(), rel=1e-3)


def test_targets_are_scikit_images(step):
    morphology, segmentation = pytest.importorskip("skimage.morphology"), pytest.importorskip("skimage.segmentation")
    p, y = p_and_y(step)
    skeleton, boundary = [], []
    for one in step["arrays"]["label"][:, 0]:
        thin = np.stack([morphology.skeletonize(plane > 0) for plane in one])
        skeleton.append(ndimage.binary_closing(np.pad(thin, 2, mode="edge"))[2:-2, 2:-2, 2:-2] & (one > 0))
        boundary.append(segmentation.find_boundaries(one, connectivity=1, mode="thick"))
    boundary = np.stack(boundary)
    assert np.array_equal(step["arrays"]["target.boundary"][:, 0], boundary)
    bce = torch.nn.functional.binary_cross_entropy_with_logits
    expected = bce(step["logits"][:, 0], torch.from_numpy(boundary).float())
    assert logged(step, "bce") == pytest.approx(expected.item(), rel=1e-4)
    ours = step["arrays"]["target.skeleton"][:, 0] > 0
    assert np.array_equal(ours[:, 2:-2, 2:-2, 2:-2], np.stack(skeleton)[:, 2:-2, 2:-2, 2:-2])
    s = torch.from_numpy(ours).float()
    recall = [1 - ((p[n, 0] * s[n]).sum() + 1e-5) / (s[n].sum() + 1e-5) for n in range(len(p))]
    assert logged(step, "skeleton_recall") == pytest.approx(np.mean(recall), rel=1e-4)
    y = step["label"][:, 0]
    signed = np.clip((distance(y) - distance(1 - y)) / 8, -1, 1)
    assert np.allclose(step["arrays"]["target.signed_distance"][:, 0], signed, atol=1e-5)
    apart = torch.nn.functional.smooth_l1_loss(step["logits"][:, 0], torch.from_numpy(signed).float())
    assert logged(step, "smooth_l1") == pytest.approx(apart.item(), rel=1e-4)


def test_topology_has_gudhis_pairs(step):
    gudhi = pytest.importorskip("gudhi")
    p, y = p_and_y(step)
    total = 0
    for n in range(len(p)):
        for dimension in range(3):
            found = pairs(gudhi, 1 - p[n, 0].double().numpy(), dimension)
            wanted = len(pairs(gudhi, 1 - y[n, 0].double().numpy(), dimension)) if y[n].any() else 0
            found = sorted(found, key=lambda pair: pair[0] - (1 if np.isinf(pair[1]) else pair[1]))
            for i, (birth, death) in enumerate(found):
                dies = not np.isinf(death)
                if i < wanted:
                    total += birth**2 + ((1 - death) ** 2 if dies else 0)
                else:
                    total += (birth - death) ** 2 if dies else (1 - birth) ** 2
    assert logged(step, "topology") == pytest.approx(total / len(p), rel=1e-3, abs=1e-6)


def pairs(gudhi, values, dimension):
    """Voxels as vertices: faces connect what is inside."""
    cells = gudhi.CubicalComplex(vertices=values)
    cells.compute_persistence(homology_coeff_field=2)
    return [pair for pair in cells.persistence_intervals_in_dimension(dimension) if pair[0] < pair[1]]


def test_a_rare_term_stands_in_the_row_after_its_steps(voxloom, draw, tmp_path):
    recipe = write_training(tmp_path, draw, "loss: {terms: [{name: dice}, {name: bce, every: 6}]}\n")
    for every in ("1", "4"):
        voxloom("train", recipe, "--run", tmp_path / every, f"monitor.log_every={every}", "training.max_epochs=1",
                "training.iterations_per_epoch=12", "validation.every=0")
    each = {row["step"]: row["loss.bce"] for row in rows(tmp_path / "1")}
    assert [step for step, value in each.items() if value] == ["1", "7"]
    seldom = rows(tmp_path / "4")
    assert [row["loss.bce"] for row in seldom] == [each["1"], each["7"], ""]
    assert [bool(row["bce_ms"]) for row in seldom] == [True, True, False] and all(row["dice_ms"] for row in seldom)
