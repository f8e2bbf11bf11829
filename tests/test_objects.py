"""Objects from boundaries and affinities, and patched sheets, by `convert --postprocess`."""
import numpy as np
import pytest
from scipy import ndimage


def run(voxloom, folder, values, spec, check=True):
    np.save(folder / "in.npy", values)
    result = voxloom("convert", folder / "in.npy", folder / "out.npy", "--postprocess", spec, check=check)
    return np.load(folder / "out.npy") if check else result


def smooth(source, shape, width):
    values = ndimage.gaussian_filter(source.normal(size=shape), width)
    return ((values - values.min()) / np.ptp(values)).astype(np.float32)


def same_objects(ours, theirs):
    """Equal up to the numbers of objects."""
    pairs = np.unique(np.stack([ours.ravel(), theirs.ravel()]), axis=1)
    return len(np.unique(pairs[0])) == pairs.shape[1] == len(np.unique(pairs[1])) and np.array_equal(ours > 0, theirs > 0)


def test_watershed_is_scikit_images(voxloom, draw, tmp_path):
    segmentation = pytest.importorskip("skimage.segmentation")
    source = np.random.default_rng(draw.randrange(2**32))
    shape = [draw.randrange(15, 35) for _ in range(3)]
    foreground, boundary = smooth(source, shape, 2.5), smooth(source, shape, 1.5)
    mask = foreground > 0.3
    for connectivity, reach in ((6, 1), (26, 3)):
        structure = ndimage.generate_binary_structure(3, reach)
        spec = f"[{{name: watershed, level: 0.3, seed: 0.5, boundary: 0.45, connectivity: {connectivity}}}]"
        seeds, _ = ndimage.label((foreground > 0.5) & (boundary < 0.45), structure)
        theirs = segmentation.watershed(boundary, seeds, connectivity=structure, mask=mask)
        ours = run(voxloom, tmp_path, np.stack([foreground, boundary]), spec)
        assert ours.dtype == np.uint32 and ours.shape == tuple(shape)
        assert same_objects(ours, theirs)
    # From a mask alone: seeds deep inside, the flood over the distances.
    depth = ndimage.distance_transform_edt(np.pad(mask, 1, mode="edge"))[1:-1, 1:-1, 1:-1].astype(np.float32)
    seeds, count = ndimage.label(depth > 2, np.ones((3, 3, 3)))
    ours = run(voxloom, tmp_path, mask.astype(np.uint8), "[{name: watershed, distance: 2}]")
    assert len(np.unique(ours[ours > 0])) == count
    reached, _ = ndimage.label(mask, np.ones((3, 3, 3)))
    with_seed = np.isin(reached, np.unique(reached[seeds > 0]))
    assert np.array_equal(ours > 0, mask & with_seed)


def test_mutex_watershed_finds_the_objects_of_perfect_affinities(voxloom, draw, tmp_path):
    source = np.random.default_rng(draw.randrange(2**32))
    points = source.uniform(0, 20, size=(8, 3))
    grid = np.stack(np.meshgrid(*[np.arange(20)] * 3, indexing="ij"), -1)
    objects = 1 + np.argmin(((grid[..., None, :] - points) ** 2).sum(-1), -1)  # Voronoi cells, connected
    offsets = [(1, 0, 0), (0, 1, 0), (0, 0, 1), (3, 0, 0), (0, 3, 0), (0, 0, 3)]
    affinities = np.zeros((len(offsets), 20, 20, 20), np.float32)
    for channel, offset in enumerate(offsets):
        here = tuple(slice(step, None) for step in offset)
        there = tuple(slice(None, 20 - step) for step in offset)
        affinities[channel][here] = objects[here] == objects[there]
    spec = "[{name: mutex_watershed, offsets: [%s], attractive: 3}]" % ", ".join(str(list(o)) for o in offsets)
    labels = np.zeros_like(objects)
    for cell in np.unique(objects):  # cells cut to the grid may fall apart through faces
        pieces, count = ndimage.label(objects == cell)
        labels[pieces > 0] = labels.max() + pieces[pieces > 0]
    assert same_objects(run(voxloom, tmp_path, affinities, spec), labels)
    damped = affinities * source.uniform(0.6, 1, affinities.shape).astype(np.float32)  # what is apart stays apart
    damped[3:] = affinities[3:]
    assert same_objects(run(voxloom, tmp_path, damped, spec), labels)
    result = run(voxloom, tmp_path, affinities[:2], spec, check=False)
    assert result.returncode == 1 and "2 channels" in result.stderr and "6" in result.stderr


def test_holes_in_sheets_are_patched_along_the_sheet(voxloom, draw, tmp_path):
    axis = draw.randrange(3)
    u, v = np.meshgrid(np.arange(48), np.arange(44), indexing="ij")
    slope, bend = draw.uniform(-0.15, 0.15), draw.uniform(0.5, 2.5)
    height = np.rint(16 + slope * u + bend * np.sin(u / 9) * np.cos(v / 8)).astype(int)
    whole = np.zeros((48, 44, 40), np.uint8)
    for thick in (0, 1):
        np.put_along_axis(whole, (height + thick)[..., None], 1, axis=2)
    neighbour = np.zeros_like(whole)
    np.put_along_axis(neighbour, (height + 8)[..., None], 1, axis=2)
    small = (u - 15) ** 2 + (v - 14) ** 2 <= draw.uniform(9, 50)
    large = (abs(u - 33) <= 9) & (abs(v - 28) <= 9)
    torn = whole.copy()
    torn[small | large] = 0
    volume = np.moveaxis(torn | neighbour, 2, axis)
    ours = np.moveaxis(run(voxloom, tmp_path, volume, "[{name: patch_sheets, min_voxels: 500, max_hole: 300}]"), axis, 2)
    assert np.array_equal(ours[~small], (torn | neighbour)[~small])  # nothing else changes; a large hole stays
    patched = ours[small] & (1 - neighbour[small])
    assert (patched.sum(1) == 2).all()
    middle = (patched * np.arange(40)).sum(1) / patched.sum(1)
    assert np.abs(middle - (height[small] + 0.5)).max() <= 2
    assert ndimage.label(ours, np.ones((3, 3, 3)))[1] == 2  # and the sheets are still two


def test_objects_come_last_and_channels_only_with_them(voxloom, tmp_path):
    values = np.random.default_rng(1).uniform(size=(2, 6, 6, 6)).astype(np.float32)
    for spec, said in (("[{name: watershed}, {name: fill_holes}]", "last"),
                       ("[{name: threshold}]", "2 channels"),
                       ("[{name: watershed, connectivity: 7}]", "6, 18 or 26")):
        result = run(voxloom, tmp_path, values, spec, check=False)
        assert result.returncode == 1 and said in result.stderr and not (tmp_path / "out.npy").exists()


def test_prediction_makes_the_objects_that_convert_makes_of_its_probabilities(voxloom, draw, tmp_path):
    from training import write_training

    chain = "[{name: watershed, level: 0.3, seed: 0.5, min_voxels: 3}]"
    recipe = write_training(tmp_path, draw, f"inference: {{postprocess: {chain}}}\n")
    image = tmp_path / "images" / "case_002.npy"
    for channels in (1, 2):  # two: a foreground and a boundary, each a probability of its own
        folder = tmp_path / f"run{channels}"
        voxloom("train", recipe, "--run", folder, "training.max_epochs=1", "training.iterations_per_epoch=8",
                f"model.out_channels={channels}")
        voxloom("predict", folder, image, "--output", folder / "objects")
        voxloom("convert", folder / "objects" / "case_002.tif", folder / "objects.npy")
        objects = np.load(folder / "objects.npy")
        assert objects.dtype == np.uint32 and objects.shape == np.load(image).shape
        assert set(np.unique(objects)) | {0} == set(range(objects.max() + 1))
    voxloom("predict", tmp_path / "run1", image, "--output", tmp_path / "plain", "--probabilities")
    voxloom("convert", tmp_path / "plain" / "case_002.tif", tmp_path / "same.npy", "--postprocess", chain)
    assert np.array_equal(np.load(tmp_path / "same.npy"), np.load(tmp_path / "run1" / "objects.npy"))
