"""`PATIENT:plan` beside the same model in SciPy: rays, fields and the rule of the least squares, in float64."""
import numpy as np
import scipy.ndimage
import scipy.sparse

SIDE, CELLS, CELL_MM, PENUMBRA_MM, SOURCE_MM = 128, 80, 5.0, 7.0, 1000.0
ORGANS = ("SpinalCord", "LeftParotid")
TARGETS = {"PTV56": 56.0, "PTV70": 70.0}


def ball(middle, radius):
    grid = np.indices((SIDE,) * 3)
    return ((grid - np.array(middle)[:, None, None, None]) ** 2).sum(0) <= radius ** 2


def patient(folder, generator):
    """An egg of tissue with bone and air in it; structures are balls at random places."""
    middle = generator.integers(50, 70, 3)
    near = lambda: middle + generator.integers(-6, 7, 3)
    masks = {name: ball(near(), generator.integers(3, 6)) for name in (*ORGANS, *TARGETS)}
    masks["possible_dose_mask"] = ball(middle, 17)
    body = ball(middle, 20)
    ct = np.where(body, generator.integers(900, 1100, body.shape), 0)
    ct[ball(near(), 4)] = 1900
    ct[ball(near(), 3) & body] = 1
    folder.mkdir()
    rows = lambda mask, text: ",data\n" + "".join(f"{i},{text(i)}\n" for i in np.flatnonzero(mask))
    (folder / "ct.csv").write_text(rows(ct, lambda i: f"{ct.ravel()[i]}.0"))
    for name, mask in masks.items():
        (folder / f"{name}.csv").write_text(rows(mask, lambda i: ""))
    spacing = generator.uniform(2, 5, 3)
    (folder / "voxel_dimensions.csv").write_text("".join(f"{value}\n" for value in spacing))
    return ct, masks, spacing


def depths(ct, spacing, voxels, ray):
    """Millimetres of water between voxels and the source, in steps of 4 mm to the border of the body's box."""
    corners = np.argwhere(ct)
    step = ray / np.linalg.norm(ray, axis=1, keepdims=True) * 4 / spacing
    at, water, inside = voxels + step / 2, np.zeros(len(voxels)), np.ones(len(voxels), bool)
    for _ in range(100):
        inside &= ((at >= corners.min(0) - 0.5) & (at < corners.max(0) + 0.5)).all(1)
        nearest = np.floor(at[inside] + 0.5).astype(int)
        water[inside] += np.clip(ct[tuple(nearest.T)] / 1000, 0, 2) * 4
        at += step
    return water


def influence(ct, spacing, isocentre, voxels):
    """Dose of each voxel from each cell of each field, before the penumbra."""
    place, parts = (voxels - isocentre) * spacing, []
    for beam in range(9):
        angle = np.radians(40 * beam)
        towards = np.array([-np.cos(angle), np.sin(angle), 0])
        ray = SOURCE_MM * towards - place
        larger = SOURCE_MM / (SOURCE_MM - place @ towards)
        u = (place[:, 1] * towards[0] - place[:, 0] * towards[1]) * larger / CELL_MM + (CELLS - 1) / 2
        v = place[:, 2] * larger / CELL_MM + (CELLS - 1) / 2
        depth = depths(ct, spacing, voxels, ray)
        left = np.exp(-0.0045 * depth) * (1 - 0.4 * np.exp(-depth / 6)) * SOURCE_MM ** 2 / (ray ** 2).sum(1)
        for i in (np.floor(u), np.floor(u) + 1):
            for k in (np.floor(v), np.floor(v) + 1):
                weight = left * (1 - abs(u - i)) * (1 - abs(v - k))
                parts.append((weight, np.arange(len(voxels)), (beam * CELLS * CELLS + i * CELLS + k).astype(int)))
    weights, rows, columns = (np.concatenate(part) for part in zip(*parts))
    return scipy.sparse.csr_matrix((weights, (rows, columns)), shape=(len(voxels), 9 * CELLS * CELLS))


def spread(fields):
    sigma = PENUMBRA_MM / CELL_MM
    return scipy.ndimage.gaussian_filter(fields.reshape(9, CELLS, CELLS), (0, sigma, sigma), mode="constant",
                                         radius=(0, 4, 4)).ravel()


def plan(ct, masks, spacing):
    wanted, possible = np.zeros(ct.shape), masks["possible_dose_mask"]
    for name, gray in TARGETS.items():
        wanted[masks[name]] = gray
    even = np.zeros(ct.shape, bool)
    even[::2, ::2, ::2] = True
    seen = (wanted > 0) | (possible & even)
    voxels, rx = np.argwhere(seen), wanted[seen]
    organ = np.any([masks[name] for name in ORGANS], axis=0)[seen]
    targets, others = (rx > 0).sum(), (rx == 0).sum()
    weight = np.where(rx > 0, 1, (0.018 + 0.25 * organ) * np.sqrt(8 * others / targets) * targets / others)
    isocentre = np.argwhere(wanted > 0).mean(0)
    matrix = influence(ct, spacing, isocentre, voxels)
    lit = (matrix[rx > 0] > 0).multiply(rx[rx > 0][:, None])
    fields = lit.tocsc().max(axis=0).toarray().ravel()
    goal = spread(matrix.T @ (weight * rx))
    for _ in range(80):
        given = spread(matrix.T @ (weight * (matrix @ spread(fields))))
        fields *= np.divide(goal, given, out=np.ones_like(goal), where=given > 0)
    dose = np.zeros(ct.shape)
    dose[possible] = influence(ct, spacing, isocentre, np.argwhere(possible)) @ spread(fields)
    return dose


def test_plan_equals_scipy(voxloom, draw, tmp_path):
    ct, masks, spacing = patient(tmp_path / "pt_1", np.random.default_rng(draw.randrange(2 ** 32)))
    voxloom("convert", f"{tmp_path}/pt_1:plan", tmp_path / "plan.npy")
    ours, theirs = np.load(tmp_path / "plan.npy"), plan(ct, masks, spacing)
    assert theirs.max() > 40
    assert abs(ours - theirs).max() < 1e-2  # Gy; ours is float32
