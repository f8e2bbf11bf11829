"""Kernels called directly, against the libraries that others use: scikit-image, gudhi, torch."""
import sys

import numpy as np
import pytest

from conftest import PROGRAM, REPOSITORY

sys.path.insert(0, str(REPOSITORY / "bench"))
import kernel_library  # noqa: E402


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    if not (PROGRAM.parent / "src" / "libvox_kernels.a").exists():
        pytest.skip("the program stands without the libraries it was built from")
    return kernel_library.Kernels(PROGRAM.parent, tmp_path_factory.mktemp("kernels"))


def numpy_source(draw):
    return np.random.default_rng(draw.randrange(2**32))


def random_mask(source, most=48):
    """Noise, smooth blobs or thin sheets, of any shape, touching the edges of the volume."""
    ndimage = pytest.importorskip("scipy.ndimage")
    shape = tuple(source.integers(1, most, 3))
    field = source.standard_normal(shape)
    kind = source.integers(3)
    if kind > 0:
        field = ndimage.gaussian_filter(field, source.uniform(0.5, 4), mode="wrap")
    if kind == 2:
        field = -np.abs(field)
    return (field > np.quantile(field, source.uniform(0.1, 0.95))).astype(np.uint8)


# ---- thinning

def test_thinning_of_slices_is_scikit_images(kernels, draw):
    morphology = pytest.importorskip("skimage.morphology")
    for _ in range(12):
        mask = random_mask(numpy_source(draw), 90)
        expected = np.stack([morphology.skeletonize(slice_, method="zhang") for slice_ in mask])
        assert np.array_equal(kernels.thin(mask, 2), expected), mask.shape


def test_thinning_in_three_dimensions_is_scikit_images(kernels, draw):
    morphology = pytest.importorskip("skimage.morphology")
    for _ in range(12):
        mask = random_mask(numpy_source(draw), 40)
        assert np.array_equal(kernels.thin(mask, 3), morphology.skeletonize(mask, method="lee") != 0), mask.shape


def test_closing_and_tubes_are_scikit_images(kernels, draw):
    morphology = pytest.importorskip("skimage.morphology")
    for _ in range(8):
        mask = random_mask(numpy_source(draw))
        assert np.array_equal(kernels.close(mask), morphology.closing(mask)), mask.shape
        assert np.array_equal(kernels.dilate(mask, 2), morphology.dilation(morphology.dilation(mask))), mask.shape


# ---- persistence

def random_map(source, most):
    """Smooth or noisy, with or without equal values, of any shape."""
    ndimage = pytest.importorskip("scipy.ndimage")
    values = source.standard_normal(tuple(source.integers(1, most, 3)))
    if source.integers(2):
        values = ndimage.gaussian_filter(values, source.uniform(0.5, 2))
    if source.integers(2):
        values = np.round(values / values.std() * source.choice([0.7, 2]) if values.std() > 0 else values)
    return values.astype(np.float32)


def in_order(intervals):
    return intervals[np.lexsort(intervals.T)]


@pytest.mark.parametrize("cubes", [False, True], ids=["vertices", "cubes"])
@pytest.mark.parametrize("falling", [False, True], ids=["rising", "falling"])
def test_persistence_pairs_are_gudhis(kernels, draw, cubes, falling):
    gudhi = pytest.importorskip("gudhi")
    for _ in range(12):
        values = random_map(numpy_source(draw), 13)
        peer = gudhi.CubicalComplex(**{"top_dimensional_cells" if cubes else "vertices": -values if falling else values})
        peer.compute_persistence()
        for dimension in range(3):
            pairs = kernels.persistence(values, dimension, falling, cubes)
            flat = np.append(values.ravel(), -np.inf if falling else np.inf)  # the last: what never dies
            expected = peer.persistence_intervals_in_dimension(dimension).reshape(-1, 2)
            found = flat[pairs] * (-1 if falling else 1)
            assert np.array_equal(in_order(found), in_order(expected)), (values.shape, dimension)


# ---- soft skeleton

def monais_skeleton(torch, values, iterations):
    return pytest.importorskip("monai.losses.cldice").soft_skel(values, iterations)


def baselines_skeleton(torch, values, iterations):
    pool, relu = torch.nn.functional.max_pool3d, torch.nn.functional.relu
    erode = lambda x: -pool(-x, 3, 1, 1)
    skeleton = torch.zeros_like(values)
    for _ in range(iterations):
        opened = pool(erode(values), 3, 1, 1)
        skeleton = skeleton + relu(relu(values - opened) - skeleton)
        values = erode(values)
    return skeleton


@pytest.mark.parametrize("formula", [monais_skeleton, baselines_skeleton])
def test_soft_skeleton_and_its_gradient_are_torchs(kernels, draw, formula):
    torch = pytest.importorskip("torch")
    cube = formula is baselines_skeleton
    for _ in range(6):
        source = numpy_source(draw)
        values = source.random(tuple(source.integers(1, 20, 3))).astype(np.float32)
        if source.integers(2):  # equal values share gradients; saturated ones end them
            values = np.round(values * 4) / 4
        iterations = int(source.integers(0, 5))
        gradient = source.standard_normal(values.shape).astype(np.float32)
        tensor = torch.from_numpy(values)[None, None].requires_grad_()
        expected = formula(torch, tensor, iterations)
        found = kernels.soft_skeleton(values, iterations, cube)
        assert np.array_equal(found, expected.detach().numpy()[0, 0]), (values.shape, iterations)
        found = kernels.soft_skeleton_backward(gradient, values, iterations, cube)
        if expected.requires_grad:
            expected.backward(torch.from_numpy(gradient)[None, None])
            np.testing.assert_allclose(found, tensor.grad.numpy()[0, 0], rtol=1e-4, atol=1e-5)
        else:
            assert not found.any()
