"""Transforms through the whole program: against scipy, torch and NumPy, and what a sample promises."""
import json

import numpy
import pytest
import scipy.ndimage
import torch
import yaml

from recipes import write_recipe, write_volumes

SPATIAL = ["rot90", "transpose", "rotate", "scale", "shift", "shear", "elastic", "misalignment"]
VALUES = ["noise", "blur", "sharpen", "brightness", "brightness_add", "brightness_gradient", "contrast",
          "low_resolution", "gamma_inverted", "gamma", "invert", "slice_illumination", "cutout", "cut_noise",
          "missing_section", "dropped_section", "blurred_section", "motion_blur"]
EVERYTHING = [f"augmentation.{name}.{key}" for name in ["flip", *SPATIAL, *VALUES]
              for key in ("enabled=true", "prob=1")] + ["augmentation.label_interpolation=linear"]
SHAPE = (14, 18, 27)


def augment(voxloom, folder, image, *overrides, label=None):
    """One patch that is the whole volume, through the given transforms."""
    numpy.save(folder / "image.npy", image)
    numpy.save(folder / "label.npy", numpy.zeros(image.shape, "uint8") if label is None else label)
    voxloom("bench", "augment", "--image", folder / "image.npy", "--label", folder / "label.npy", "--repeats", 1,
            "--output", folder / "out.npy", "--label-output", folder / "out_label.npy", "--json",
            "data.patch_size=" + ",".join(map(str, image.shape)), *overrides)
    return numpy.load(folder / "out.npy"), numpy.load(folder / "out_label.npy")


def on(name, **options):
    return [f"augmentation.{name}.enabled=true", f"augmentation.{name}.prob=1",
            *(f"augmentation.{name}.{key}={value}" for key, value in options.items())]


@pytest.fixture
def image(draw):
    return numpy.random.default_rng(draw.randrange(2**32)).normal(1, 2, SHAPE).astype("float32")


def test_blur_is_scipys(voxloom, tmp_path, image, draw):
    sigma = draw.uniform(0.4, 2)
    out, _ = augment(voxloom, tmp_path, image, *on("blur", sigma=f"{sigma},{sigma}"))
    radius = int(numpy.floor((6 * sigma + 0.5 - 1) / 2 + 0.5))
    expected = scipy.ndimage.gaussian_filter(image.astype("float64"), sigma, mode="mirror", radius=radius)
    numpy.testing.assert_allclose(out, expected, atol=2e-5)


def test_low_resolution_is_torchs(voxloom, tmp_path, image, draw):
    share = draw.uniform(0.3, 0.95)
    out, _ = augment(voxloom, tmp_path, image, *on("low_resolution", scale=f"{share},{share}"))
    coarse = [max(1, int(numpy.round(n * share))) for n in SHAPE]
    down = torch.nn.functional.interpolate(torch.from_numpy(image)[None, None], size=coarse, mode="nearest-exact")
    up = torch.nn.functional.interpolate(down, size=SHAPE, mode="trilinear", align_corners=False)
    numpy.testing.assert_allclose(out, up[0, 0].numpy(), atol=2e-5)


@pytest.mark.parametrize("name", ["gamma", "gamma_inverted"])
def test_gamma_is_numpys(voxloom, tmp_path, image, draw, name):
    exponent = draw.uniform(0.5, 2)
    out, _ = augment(voxloom, tmp_path, image, *on(name, range=f"{exponent},{exponent}", keep_statistics="true"))
    x = image.astype("float64") * (-1 if name == "gamma_inverted" else 1)
    mean, deviation, low, span = x.mean(), x.std(), x.min(), numpy.ptp(x)
    x = ((x - low) / span) ** exponent * span + low
    x = (x - x.mean()) / x.std() * deviation + mean
    numpy.testing.assert_allclose(out, -x if name == "gamma_inverted" else x, atol=5e-5)


def test_a_blurred_section_is_scipys(voxloom, tmp_path, image):
    out, _ = augment(voxloom, tmp_path, image, *on("blurred_section", sigma="1.5,1.5"))
    (section,) = [z for z in range(SHAPE[0]) if not numpy.array_equal(out[z], image[z])]
    expected = scipy.ndimage.gaussian_filter(image[section].astype("float64"), 1.5, mode="mirror", radius=4)
    numpy.testing.assert_allclose(out[section], expected, atol=2e-5)


def test_labels_follow_the_image(voxloom, tmp_path, draw):
    """An image that is its own label, interpolated linearly, is above a half exactly where the label says so."""
    source = numpy.random.default_rng(draw.randrange(2**32))
    label = (scipy.ndimage.gaussian_filter(source.normal(size=(30, 34, 38)), 3) > 0).astype("uint8")
    out, out_label = augment(
        voxloom, tmp_path, label.astype("float32"), *on("flip"), *on("rotate"), *on("elastic", grid=9, magnitude="3,3"),
        *on("misalignment", voxels=4), *on("transpose"), "augmentation.label_interpolation=linear", label=label)
    undecided = numpy.abs(out - 0.5) < 1e-5
    assert undecided.mean() < 0.01
    assert numpy.array_equal(out_label[~undecided], (out > 0.5)[~undecided])
    assert 0.05 < out_label.mean() < 0.95


def test_everything_on_gives_one_hash_on_any_number_of_threads(voxloom, tmp_path, draw):
    write_volumes(tmp_path, 3, (30, 40, 44), draw)
    recipe = write_recipe(tmp_path)
    def batch_hash(*arguments):
        said = voxloom("bench", "data", recipe, *arguments, "training.seed=7", "--hash", "--json", "--batches", 6)
        return json.loads(said.stdout)[0]["hash"]

    hashes = {batch_hash(*EVERYTHING, "--threads", threads) for threads in (1, 2, 5)}
    assert len(hashes) == 1
    assert batch_hash() not in hashes


def test_a_sample_tells_what_was_drawn_and_how_it_looks(voxloom, tmp_path, draw):
    imageio = pytest.importorskip("imageio.v3")
    write_volumes(tmp_path, 2, (30, 40, 44), draw)
    recipe = write_recipe(tmp_path, patch=(12, 20, 24))
    number = draw.randrange(10**6)
    arguments = ("inspect", recipe, *EVERYTHING, "--sample", number, "--picture", tmp_path / "sample.png", "--json")
    told = json.loads(voxloom(*arguments).stdout)
    drawn = {one["name"]: one["value"] for one in told["parameters"]}
    assert told["sample"] == number and set(drawn) >= set(SPATIAL + VALUES)
    assert json.loads(voxloom(*arguments).stdout) == told
    picture = imageio.imread(tmp_path / "sample.png")
    assert picture.shape == (8 * 20, 2 * 24 + 4, 3)
    assert picture.std() > 10
    plain = json.loads(voxloom("inspect", recipe, "augmentation.enabled=false", "--sample", number, "--json").stdout)
    assert plain["parameters"] == [] and plain["case"] == told["case"]


@pytest.mark.parametrize("interpolation", ["nearest", "linear"])
def test_labels_hold_nothing_but_labels_and_padding_is_ignored(voxloom, tmp_path, draw, interpolation):
    """Labels 1 and 3 everywhere, a patch that reaches beyond: 1, 3 and the ignore label 2, and never a mixture."""
    write_volumes(tmp_path, 1, (20, 20, 20), draw)
    label = numpy.ones((20, 20, 20), "uint8")
    label[:, 10:] = 3
    numpy.save(tmp_path / "labels" / "case_000.npy", label)
    recipe = write_recipe(tmp_path, patch=(28, 28, 28))
    for _ in range(3):
        told = json.loads(voxloom("inspect", recipe, *EVERYTHING, f"augmentation.label_interpolation={interpolation}",
                                  "--sample", draw.randrange(10**6), "--json").stdout)
        assert set(told["labels"]) <= {"1", "2", "3"} and "2" in told["labels"]
        assert sum(told["labels"].values()) == 28**3


def test_every_preset_draws_and_the_resolved_recipe_shows_its_values(voxloom, tmp_path, draw):
    write_volumes(tmp_path, 2, (30, 40, 44), draw)
    recipe = write_recipe(tmp_path)
    recipe.write_text(recipe.read_text().split("augmentation:")[0])
    for preset in ("none", "flips", "nnunet", "scroll_heavy", "em"):
        samples = [json.loads(voxloom("inspect", recipe, f"augmentation.preset={preset}", "--sample", n, "--json").stdout)
                   for n in range(6)]
        assert any(one["parameters"] for one in samples) == (preset != "none"), preset
    resolved = yaml.safe_load(voxloom("train", recipe, "--dry-run", "data.patch_size=16", "augmentation.preset=nnunet",
                                      "augmentation.blur.prob=0.9").stdout)
    assert resolved["augmentation"]["scale"]["enabled"] and resolved["augmentation"]["gamma"]["prob"] == 0.3
    assert resolved["augmentation"]["blur"]["prob"] == 0.9 and resolved["data"]["sampler"] == "foreground"
    wrong = voxloom("inspect", recipe, "augmentation.preset=nnu", "--sample", 1, check=False)
    assert wrong.returncode == 1 and "nnunet" in wrong.stderr


@pytest.mark.parametrize("kind, suffix", [("mitochondria", "npy"), ("dose", "nii.gz")])
def test_synthetic_data_is_there_in_the_format_asked_for(voxloom, tmp_path, kind, suffix):
    voxloom("synth", kind, tmp_path / "data", "--count", 2, "--size", "16,24,24", "--seed", 3, "--format", suffix)
    folders = {path.name for path in (tmp_path / "data").iterdir() if path.is_dir()}
    expected = {"images", "labels"} if kind == "mitochondria" else {"ct", "dose", "possible_dose_mask", "PTV70", "Larynx"}
    assert folders >= expected
    for folder in folders:
        assert len(list((tmp_path / "data" / folder).glob(f"*.{suffix}"))) == 2


def test_a_synthetic_dose_patient_reads_as_one_of_the_challenge(voxloom, tmp_path):
    voxloom("synth", "dose", tmp_path / "data", "--count", 1, "--format", "openkbp")
    told = json.loads(voxloom("inspect", f"{tmp_path}/data/pt_1:dose", "--json").stdout)
    assert told["shape"] == [128, 128, 128] and 60 < told["maximum"] <= 70
    rows = numpy.genfromtxt(tmp_path / "data" / "pt_1" / "dose.csv", delimiter=",", skip_header=1)
    mask = numpy.genfromtxt(tmp_path / "data" / "pt_1" / "possible_dose_mask.csv", delimiter=",", skip_header=1)
    assert numpy.array_equal(rows[:, 0], mask[:, 0]) and numpy.all(numpy.diff(rows[:, 0]) > 0)
