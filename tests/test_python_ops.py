"""The Python package against scipy, MONAI, cc3d, gudhi, scikit-image and torch's own arithmetic."""
import os
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import ndimage

torch = pytest.importorskip("torch")
ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def ops():
    if "VOXLOOM" in os.environ:
        beside = Path(os.environ["VOXLOOM"]).resolve().parent / "python" / "libvoxloom_ops.so"
        if beside.exists():
            os.environ.setdefault("VOXLOOM_OPS", str(beside))
    sys.path.insert(0, str(ROOT / "python"))
    import voxloom

    return voxloom


@pytest.fixture
def source(draw):
    return np.random.default_rng(draw.randrange(2**32))


def blob(source, shape, level=0.5):
    values = ndimage.gaussian_filter(source.normal(size=shape), 1.5)
    return (values - values.min()) / np.ptp(values) > level


def test_distances_are_scipys(ops, source, draw):
    shape, spacing = [draw.randrange(6, 20) for _ in range(3)], [draw.uniform(0.5, 3) for _ in range(3)]
    masks = np.stack([blob(source, shape), blob(source, shape)])
    ours = ops.edt(torch.from_numpy(masks), spacing).numpy()
    signed = ops.signed_distance(torch.from_numpy(masks), spacing).numpy()
    for mask, distance, both in zip(masks, ours, signed):
        inside = ndimage.distance_transform_edt(mask, spacing)
        np.testing.assert_allclose(distance, inside, rtol=1e-5)
        np.testing.assert_allclose(both, ndimage.distance_transform_edt(~mask, spacing) - inside, rtol=1e-5)
    near = ops.edt(torch.from_numpy(masks[0]), spacing, limit=2.5).numpy()
    np.testing.assert_allclose(near, np.minimum(ours[0], 2.5), rtol=1e-5)


def test_soft_skeleton_is_monais_with_its_gradient(ops, draw, source):
    from monai.losses.cldice import soft_skel

    shape = [2, 1] + [draw.randrange(6, 14) for _ in range(3)]
    iterations = draw.randrange(1, 5)
    ours = torch.from_numpy(source.uniform(size=shape)).requires_grad_(True)
    theirs = ours.detach().clone().requires_grad_(True)
    weights = torch.from_numpy(source.normal(size=shape))
    (ops.soft_skeleton(ours, iterations) * weights).sum().backward()
    (soft_skel(theirs, iterations) * weights).sum().backward()
    torch.testing.assert_close(ops.soft_skeleton(ours, iterations), soft_skel(theirs, iterations))
    torch.testing.assert_close(ours.grad, theirs.grad)
    small = torch.from_numpy(source.uniform(size=[1, 1, 3, 4, 4])).requires_grad_(True)
    assert torch.autograd.gradcheck(lambda v: ops.soft_skeleton(v, 2, "cube"), small)
    loss = ops.cldice(ours, (theirs.detach() > 0.5).double(), iterations)
    loss.backward()
    assert 0 < loss.item() < 1 and ours.grad.isfinite().all()
    wide = torch.from_numpy(source.uniform(size=[1, 1, 64, 64, 64])).half()  # sums beyond what half precision holds
    halves = ops.cldice(wide, wide > 0.4)
    torch.testing.assert_close(halves, ops.cldice(wide.float(), wide > 0.4), rtol=1e-3, atol=1e-3)


def test_dice_and_cross_entropy_are_torchs(ops, draw, source):
    shape = [draw.randrange(1, 4), 1] + [draw.randrange(3, 9) for _ in range(3)]
    logits = torch.from_numpy(source.normal(size=shape).astype(np.float32) * 3).requires_grad_(True)
    target = torch.from_numpy(source.integers(0, 3, size=shape))  # 2 is ignored
    ops.dice_bce(logits, target, dice_weight=0.7, bce_weight=1.3, ignore=2).backward()
    ours, logits.grad = logits.grad, None
    valid = target != 2
    wanted = (target == 1).double()
    p = torch.sigmoid(logits.double()) * valid
    axes = tuple(range(1, 5))
    dice = 1 - (2 * (p * wanted).sum(axes) + 1) / (p.sum(axes) + wanted.sum(axes) + 1)
    bce = torch.nn.functional.binary_cross_entropy_with_logits(logits.double()[valid], wanted[valid])
    loss = 0.7 * dice.mean() + 1.3 * bce
    loss.backward()
    torch.testing.assert_close(ops.dice_bce(logits, target, 0.7, 1.3, ignore=2), loss.float())
    torch.testing.assert_close(ours, logits.grad, rtol=1e-4, atol=1e-7)


def test_components_are_cc3ds(ops, draw, source):
    cc3d = pytest.importorskip("cc3d")
    labels = source.integers(0, 3, size=[draw.randrange(4, 16) for _ in range(3)]).astype(np.int32)
    for connectivity in (6, 18, 26):
        ours = ops.connected_components(torch.from_numpy(labels), connectivity).numpy()
        theirs = cc3d.connected_components(labels, connectivity=connectivity)
        pairs = np.unique(np.stack([ours.ravel(), theirs.ravel()]), axis=1)
        assert pairs.shape[1] == ours.max() + 1 == theirs.max() + 1


@pytest.mark.parametrize("dtype, number", [("int64", 2**40), ("int64", 2**32), ("int64", -2**62), ("uint64", 2**63 + 5),
                                           ("uint32", 2**32 - 2), ("float32", 2.0**33), ("float64", 2.0**40 + 1)])
def test_numbers_of_objects_may_need_more_than_32_bits(ops, source, dtype, number):
    labels = source.integers(0, 3, size=(5, 6, 7))
    large = np.where(labels == 2, number, labels).astype(dtype)  # cut to 32 bits, 2**32 would be background
    ours, expected = (ops.connected_components(torch.from_numpy(array), 6) for array in (large, labels))
    assert torch.equal(ours, expected) and ours.dtype == torch.int32


def test_numbers_of_objects_stay_whole_under_torch_compile(ops, source):
    labels = source.integers(0, 3, size=(5, 6, 7))
    large = torch.from_numpy(np.where(labels == 2, 2**32, labels))
    compiled = torch.compile(lambda x: ops.connected_components(x, 6) + 1, backend="eager")
    assert torch.equal(compiled(large) - 1, ops.connected_components(torch.from_numpy(labels), 6))


def test_tensors_on_two_devices_are_refused(ops):
    here, there = torch.zeros(1, 1, 4, 4, 4), torch.zeros(1, 1, 4, 4, 4, device="meta")
    for loss in (ops.dice_bce, ops.cldice):
        for tensors in ((here, there), (there, here)):
            with pytest.raises(ValueError, match="cpu and meta; bring them to one device"):
                loss(*tensors)


def test_probabilities_are_no_labels(ops):
    with pytest.raises(ValueError, match="> 0.5"):
        ops.connected_components(torch.full((2, 2, 2), 0.7))
    assert ops.connected_components(torch.ones(2, 2, 2)).eq(1).all()


def test_skeletons_are_scikit_images(ops, draw, source):
    morphology = pytest.importorskip("skimage.morphology")
    masks = blob(source, [draw.randrange(4, 24), draw.randrange(4, 24), 40])[None]
    masks = np.concatenate([masks, source.uniform(size=masks.shape) < draw.uniform(0.1, 0.9)])
    of_slices, of_volumes = (ops.thin(torch.from_numpy(masks), n).numpy() for n in (2, 3))
    for mask, slices, volume in zip(masks, of_slices, of_volumes):
        np.testing.assert_array_equal(slices, np.stack([morphology.skeletonize(m) for m in mask]))
        np.testing.assert_array_equal(volume, morphology.skeletonize(mask, method="lee") != 0)


def test_betti_numbers_are_scipys_and_scikit_images(ops, draw, source):
    measure = pytest.importorskip("skimage.measure")
    shape = [2, 3] + [draw.randrange(3, 12) for _ in range(3)]
    masks = source.uniform(size=shape) < draw.uniform(0.3, 0.95)
    ours = ops.betti_numbers(torch.from_numpy(masks)).numpy()
    assert ours.shape == (2, 3, 3)
    for mask, numbers in zip(masks.reshape(-1, *shape[2:]), ours.reshape(-1, 3)):
        background = ndimage.label(np.pad(~mask, 1, constant_values=True), np.ones([3, 3, 3]))[1]
        assert numbers[0] == ndimage.label(mask)[1] and numbers[2] == background - 1
        assert numbers[0] - numbers[1] + numbers[2] == measure.euler_number(mask, connectivity=1)


def test_persistence_is_gudhis(ops, draw, source):
    gudhi = pytest.importorskip("gudhi")
    values = source.permutation(8 * 7 * 6).reshape(8, 7, 6).astype(np.float32)
    complex_ = gudhi.CubicalComplex(vertices=values.astype(np.float64))
    complex_.persistence()
    for dimension in range(3):
        pairs = ops.persistence_pairs(torch.from_numpy(values), dimension).numpy()
        flat = values.ravel()
        ours = sorted((flat[b], np.inf if d < 0 else flat[d]) for b, d in pairs)
        theirs = sorted(map(tuple, complex_.persistence_intervals_in_dimension(dimension)))
        assert ours == theirs


def test_the_operators_pass_torchs_own_checks_and_compile(ops, source):
    values = torch.from_numpy(source.uniform(size=[1, 4, 5, 6]).astype(np.float32))
    checks = ("test_schema", "test_autograd_registration", "test_faketensor")
    torch.library.opcheck(torch.ops.voxloom.soft_skeleton.default, (values.clone().requires_grad_(True), 2, False),
                          test_utils=checks)
    torch.library.opcheck(torch.ops.voxloom.edt.default, ((values > 0.5).to(torch.uint8), 1.0, 1.0, 1.0, 9.0),
                          test_utils=checks)
    for bad in (lambda: ops.soft_skeleton(values, erosion="ball"), lambda: ops.edt(values, (1, 0, 1)),
                lambda: ops.connected_components(values > 0.5, 7), lambda: ops.edt(values[0, 0]),
                lambda: ops.cldice(values, values[:, :2]), lambda: ops.thin(values > 0.5, 4)):
        with pytest.raises((ValueError, RuntimeError), match="voxloom"):
            bad()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_tensors_on_a_gpu_give_what_those_on_the_cpu_give(ops, draw, source):
    """Wherever it is computed: values, gradients, and that results lie where the input lies."""
    shape = [2, 1] + [draw.randrange(6, 30) for _ in range(3)]
    mask = torch.from_numpy(np.stack([blob(source, shape[2:])[None] for _ in range(2)]))
    values = torch.from_numpy(source.uniform(size=shape)).float()
    logits = torch.from_numpy(source.normal(size=shape) * 3).float()
    labels = mask.long().masked_fill(torch.from_numpy(source.uniform(size=shape) < 0.2), 7)

    def gradient(loss, x):
        x = x.clone().requires_grad_(True)
        value = loss(x)
        return value.detach(), *torch.autograd.grad(value.sum(), x)

    def everything(device):
        m, v, x, t = (tensor.to(device) for tensor in (mask, values, logits, labels))
        return [ops.edt(m, (1, 2, 0.5)), ops.signed_distance(m), ops.connected_components(m),
                ops.thin(m), ops.thin(m, 2), ops.betti_numbers(m),
                *(ops.persistence_pairs(v[0, 0], d, "falling") for d in range(3)),
                *gradient(lambda p: ops.soft_skeleton(p, 4), v),
                *gradient(lambda p: ops.cldice(p, m, 5), v), *gradient(lambda p: ops.cldice(p, m, 3, "cube"), v),
                *gradient(lambda p: ops.soft_skeleton(p, 2), v.double()),
                *gradient(lambda p: ops.dice_bce(p, t, ignore=7), x), *gradient(lambda p: ops.dice_bce(p, m), x.half())]

    for here, there in zip(everything("cpu"), everything("cuda")):
        assert there.is_cuda and there.dtype == here.dtype
        torch.testing.assert_close(there.cpu(), here, rtol=1e-4, atol=5e-5)
