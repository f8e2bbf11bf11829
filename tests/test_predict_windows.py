"""Sliding windows against MONAI's: placement, blends, variants, ensembles, and windows that are left out."""
import itertools

import numpy as np
import pytest
import tifffile
import torch
from inference import make_network, random_image, values_of, windows
from recipes import write_recipe, write_volumes


@pytest.fixture(scope="module")
def networks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("networks")
    return {"one": make_network(folder, "one", 1), "two": make_network(folder, "two", 2),
            "classes": make_network(folder, "classes", 3, (4, 8), (1, 3))}


def predict(voxloom, folder, network, image, *arguments):
    np.save(folder / "case.npy", image)
    voxloom("predict", network[1], folder / "case.npy", "--output", folder / "out", *arguments)
    return tifffile.imread(folder / "out" / "case.tif")


def bump(window):
    axes = [np.exp(1 - 1 / (1 - ((2 * np.arange(n) + 1) / n - 1) ** 2)) for n in window]
    return torch.from_numpy(np.maximum(axes[0][:, None, None] * axes[1][:, None] * axes[2], 1e-3)).float()


def text(window):
    return "inference.window=" + ",".join(map(str, window))


@pytest.mark.parametrize("blend", ["gaussian", "constant", "bump"])
def test_the_blend_equals_monai_on_the_same_weights(networks, voxloom, draw, tmp_path, blend):
    window = [draw.choice([8, 12, 16]) for _ in range(3)]
    shape = [draw.randrange(5, 40) for _ in range(3)]
    overlap = draw.choice([0, 0.25, 0.5, 0.6, round(draw.uniform(0, 0.8), 3)])
    image = random_image(draw, shape)
    ours = predict(voxloom, tmp_path, networks["one"], image, text(window), "--overlap", overlap,
                   f"inference.blend={blend}", f"inference.batch_size={draw.choice([1, 2, 5])}")
    weights = bump(window)[None, None] if blend == "bump" else None
    theirs = values_of(networks["one"][0], image, window, overlap, weights,
                       "gaussian" if blend == "bump" else blend)[0]
    assert ours.shape == tuple(shape) and np.abs(ours - theirs).max() <= 1e-4


def turned(image, axes, mirrored):
    return np.flip(image.transpose(axes), mirrored)


def unturned(image, axes, mirrored):
    return np.flip(image, mirrored).transpose(np.argsort(axes))


@pytest.mark.parametrize("window, kind, count", [((8, 8, 8), "mirror", 8), ((8, 12, 12), "mirror_rotate", 16),
                                                 ((8, 8, 8), "mirror_rotate", 48)])
def test_variants_are_averaged(networks, voxloom, draw, tmp_path, window, kind, count):
    image = random_image(draw, window)  # one window, so that turning it is turning the volume
    variants = [(axes, mirrored) for axes in itertools.permutations(range(3))
                if all(window[a] == n for a, n in zip(axes, window)) and (kind == "mirror_rotate" or axes == (0, 1, 2))
                for k in range(4) for mirrored in itertools.combinations(range(3), k)]
    assert len(variants) == count
    theirs = np.zeros(window)
    for axes, mirrored in variants:
        with torch.no_grad():
            output = networks["one"][0](torch.from_numpy(turned(image, axes, mirrored).copy())[None, None])[0, 0].numpy()
        theirs += unturned(output, axes, mirrored) / count
    how = ["--tta"] if kind == "mirror" else [f"inference.tta={kind}"]
    for batch in (1, 3, 64):
        ours = predict(voxloom, tmp_path, networks["one"], image, text(window), f"inference.batch_size={batch}", *how)
        assert np.abs(ours - theirs).max() <= 1e-4


def test_an_ensemble_is_the_mean_of_its_members(networks, voxloom, draw, tmp_path):
    image = random_image(draw, (20, 9, 17))
    members = [values_of(networks[name][0], image, [8, 8, 8], 0.5)[0] for name in ("one", "two")]
    both = (networks["one"][0], f"{networks['one'][1]},{networks['two'][1]}")
    joined = predict(voxloom, tmp_path, both, image, text([8, 8, 8]))
    voxloom("predict", networks["one"][1], "--also", networks["two"][1], tmp_path / "case.npy", "--output",
            tmp_path / "also", text([8, 8, 8]))
    for ours in (joined, tifffile.imread(tmp_path / "also" / "case.tif")):
        assert np.abs(ours - np.mean(members, axis=0)).max() <= 1e-4
    refused = voxloom("predict", networks["one"][1], tmp_path / "case.npy", "--also", networks["classes"][1],
                      "--output", tmp_path / "out", check=False)
    assert refused.returncode == 1 and "output channels" in refused.stderr and "classes" in refused.stderr


def test_an_ensemble_is_mirrored_as_all_of_its_members_learned(voxloom, draw, tmp_path):
    flips = {"some": ["axes=2,0"], "more": ["axes=0,1"], "swaps": ["axes=0", "swap_channels=0,1", "swap_axis=0"]}
    made = {name: make_network(tmp_path, name, seed, (2, 4), (2, 1), "augmentation.flip.enabled=true",
                               *(f"augmentation.flip.{option}" for option in flip))
            for seed, (name, flip) in enumerate(flips.items())}
    image = random_image(draw, (8, 8, 8))
    np.save(tmp_path / "case.npy", image)
    theirs = np.zeros(image.shape)
    for name, mirrored in itertools.product(("some", "more"), ((), (0,))):
        with torch.no_grad():
            window = torch.from_numpy(np.stack(2 * [np.flip(image, mirrored)]))[None]
            theirs += np.flip(made[name][0](window)[0, 0].numpy(), mirrored) / 4
    arguments = ["predict", made["some"][1], f"{tmp_path}/case.npy,{tmp_path}/case.npy", "--tta", text([8, 8, 8]),
                 "--output", tmp_path / "out"]
    voxloom(*arguments, "--also", made["more"][1])
    assert np.abs(tifffile.imread(tmp_path / "out" / "case.tif") - theirs).max() <= 1e-4
    refused = voxloom(*arguments, "--also", made["swaps"][1], check=False)
    assert refused.returncode == 1 and "swap_channels" in refused.stderr


def test_members_whose_channels_mean_other_things_are_not_averaged(voxloom, draw, tmp_path):
    np.save(tmp_path / "case.npy", random_image(draw, (8, 8, 8)))
    files = []
    for number, (inside, edge) in enumerate(((0, 1), (1, 0), (0, 1))):
        terms = f"[{{name: bce, channels: [{inside}]}}, {{name: bce, target: boundary, channels: [{edge}]}}]"
        files.append(make_network(tmp_path, f"net{number}", number, (2, 4), (1, 2), "data.target=segmentation",
                                  f"loss.terms={terms}")[1])
    arguments = ["predict", files[0], tmp_path / "case.npy", "--output", tmp_path / "out", text([8, 8, 8])]
    refused = voxloom(*arguments, "--also", files[1], check=False)
    assert refused.returncode == 1 and "loss.terms" in refused.stderr and "net1" in refused.stderr
    voxloom(*arguments, "--also", files[2])


def test_members_normalised_by_other_statistics_are_averaged_as_each_is_alone(voxloom, draw, tmp_path):
    write_volumes(tmp_path, 4, (16, 18, 20), draw)
    for number in (2, 3):  # so that folds differ
        path = tmp_path / "images" / f"case_{number:03d}.npy"
        np.save(path, np.load(path) // 3 + 7)
    recipe = write_recipe(tmp_path, (8, 8, 8))
    runs = []
    for number, training in enumerate((["case_000", "case_001"], ["case_002", "case_003"])):
        runs.append(tmp_path / f"run{number}")
        voxloom("train", recipe, "data.preprocess=[{name: zscore, scope: dataset}]", "data.split=explicit",
                f"data.train=[{', '.join(training)}]", f"data.validation=[case_00{2 - 2 * number}]", "validation.every=0",
                "data.target=regression", "data.ignore_label=none",
                "loss.terms=[{name: mae}]", "model.filters=2,4", "training.max_epochs=1",
                "training.iterations_per_epoch=2", "training.precision=32", f"training.seed={number}", "--run", runs[-1])
    case = tmp_path / "images" / "case_001.npy"
    for size in (8, 24):  # the larger one reaches beyond the volume, where each saw data.pad_value
        told = []
        for number, model in enumerate([*runs, f"{runs[0]},{runs[1]}"]):
            folder = tmp_path / f"out{number}-{size}"
            voxloom("predict", model, case, "--output", folder, f"inference.window={size}", "inference.format=npy")
            told.append(np.load(folder / "case_001.npy"))
        assert np.abs(told[2] - (told[0] + told[1]) / 2).max() <= 1e-4 * np.abs(told[:2]).max(), size
    both = ["predict", f"{runs[0]},{runs[1]}", "--output", tmp_path / "held_out", "--split", "validation",
            "inference.window=8"]
    assert "run1/checkpoints/last.safetensors was trained on 1 of the 1 cases" in voxloom(*both).stderr


def blended(network, image, window, overlap, wanted):
    """The blend of the wanted windows alone, and where there is one."""
    axes = [np.exp(-0.5 * ((np.arange(n) - (n - 1) / 2) / (n / 8)) ** 2) for n in window]
    bell = np.maximum(axes[0][:, None, None] * axes[1][:, None] * axes[2], 1e-3)
    total, weight = np.zeros(image.shape), np.zeros(image.shape)
    for here in windows(image.shape, window, overlap):
        if not wanted(here):
            continue
        with torch.no_grad():
            total[here] += bell * network(torch.from_numpy(image[here])[None, None])[0, 0].numpy()
        weight[here] += bell
    return np.where(weight > 0, total / np.maximum(weight, 1e-9), 0), weight > 0


@pytest.mark.parametrize("how", ["mask", "channel", "threshold"])
def test_windows_without_anything_are_skipped_and_zero(networks, voxloom, draw, tmp_path, how):
    window, shape = [8, 8, 8], [draw.randrange(16, 30) for _ in range(3)]
    image = np.clip(random_image(draw, shape), -1, 1) - 2
    mask = np.zeros(shape, np.uint8)
    at = [draw.randrange(n) for n in shape]
    mask[tuple(slice(a, a + 3) for a in at)] = 1
    image[mask > 0] = 5
    if how == "channel":
        image[mask == 0] = 0
    np.save(tmp_path / "mask_case.npy", mask)
    option = {"mask": f"inference.mask={tmp_path}/mask_{{id}}.npy", "channel": "inference.mask=channel:0",
              "threshold": "inference.skip_below=4.5"}[how]
    ours = predict(voxloom, tmp_path, networks["one"], image, text(window), option, "inference.batch_size=3")
    if how == "mask":  # one window about its box
        ends = [min(a + 3, n) for a, n in zip(at, shape)]
        begins = [min(max(a - (8 - (e - a)) // 2, 0), n - 8) for a, e, n in zip(at, ends, shape)]
        box = tuple(slice(b, b + 8) for b in begins)
        theirs, touched = np.zeros(shape), np.zeros(shape, bool)
        with torch.no_grad():
            theirs[box] = networks["one"][0](torch.from_numpy(image[box])[None, None])[0, 0].numpy()
        touched[box] = True
    else:
        theirs, touched = blended(networks["one"][0], image, window, 0.5, lambda here: mask[here].any())
    assert not touched.all() and (ours[~touched] == 0).all()
    assert np.abs(ours - theirs).max() <= 1e-4
    labels = predict(voxloom, tmp_path, networks["classes"], image, text(window), option, "data.target=segmentation")
    assert (labels[~touched] == 0).all()


@pytest.mark.parametrize("how", ["orientation: RAS", "preprocess: [{name: resample, spacing: [1, 1, 1]}]"])
def test_a_mask_lies_on_the_grid_of_the_file_and_follows_the_image(networks, voxloom, draw, tmp_path, how):
    import nibabel

    affine = np.array([[0, 0, 2, 5], [-1, 0, 0, 6], [0, 1, 0, 7], [0, 0, 0, 1]])  # x of the file goes to the back
    shape = (24, 26, 18)
    at = [draw.randrange(4, n - 8) for n in shape]
    mask = np.zeros(shape, np.uint8)
    mask[tuple(slice(a, a + 3) for a in at)] = 1
    for name, values in (("case", random_image(draw, shape)), ("mask_case", mask)):
        nibabel.save(nibabel.Nifti1Image(values, affine), tmp_path / f"{name}.nii")
    key, value = how.split(": ", 1)
    voxloom("predict", networks["one"][1], tmp_path / "case.nii", "--output", tmp_path / "out", text([8, 8, 8]),
            f"data.{key}={value}", f"inference.mask={tmp_path}/mask_{{id}}.nii", "inference.format=nii")
    written = nibabel.load(tmp_path / "out" / "case.nii")
    ours = np.asarray(written.dataobj) != 0
    assert ours.shape == shape and np.array_equal(written.affine, affine)
    assert ours[mask > 0].all()
    away = np.ones(shape, bool)  # a window of 8, or of 4 voxels as thick as two, reaches no further
    away[tuple(slice(max(0, a - 7), a + 10) for a in at)] = False
    assert away.any() and not ours[away].any()


def test_a_mask_of_another_size_is_named(networks, voxloom, tmp_path):
    np.save(tmp_path / "m.npy", np.ones((4, 4, 4), np.uint8))
    np.save(tmp_path / "case.npy", np.ones((8, 8, 8), np.float32))
    for option, words in ((f"inference.mask={tmp_path}/m.npy", "m.npy"), ("inference.mask=channel:3", "channel:0"),
                          ("inference.mask=case", "case case"), ("inference.mask=gone_{id}.npy", "gone_case.npy"),
                          ("inference.blend=round", "gaussian"), ("model.filters=3", "inference, data and system"),
                          ("inference.format=jpg", "case.jpg")):
        result = voxloom("predict", networks["one"][1], tmp_path / "case.npy", "--output", tmp_path, option,
                         text([8, 8, 8]), check=False)
        assert result.returncode == 1 and words in result.stderr, (option, result.stderr)
