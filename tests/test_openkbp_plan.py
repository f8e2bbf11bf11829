"""`PATIENT:plan` beside the same model in SciPy: rays, fields and the rule of the least squares, in float64."""
import numpy as np
import scipy.ndimage
import scipy.sparse

SIDE, CELLS, CELL_MM, PENUMBRA_MM, SOURCE_MM = 128, 80, 5.0, 5.2, 1000.0
ORGANS = {"Mandible": (0.025, 0), "Larynx": (0.025, 0), "Esophagus": (0.06, 0), "LeftParotid": (0.1, 0),
          "RightParotid": (0.1, 0), "SpinalCord": (0.2, 20), "Brainstem": (0.08, 9)}  # weight, what is free in Gy
TISSUE, BEHIND_CORD, BESIDE_CORD_MM = (0.011, 24), (0.034, 12.5), 12
TARGETS = {"PTV56": 56.5, "PTV63": 66.0, "PTV70": 73.0}
OVERDOSE, ACROSS, ALONG, ROUNDS = 0.4, 1.9, 0.085, 120
FIELD_COST = np.repeat([0, 0, 0.85, 0, 0, 0, 0, 0.85, 0], CELLS * CELLS)


def ball(middle, radius):
    grid = np.indices((SIDE,) * 3)
    return ((grid - np.array(middle)[:, None, None, None]) ** 2).sum(0) <= radius ** 2


def patient(folder, generator):
    """An egg of tissue with bone and air in it; structures are balls at random places."""
    middle = generator.integers(50, 70, 3)
    near = lambda: middle + generator.integers(-6, 7, 3)
    names = (*generator.permutation(list(ORGANS))[:4], "PTV70", *generator.permutation(["PTV56", "PTV63"])[:1])
    masks = {name: ball(near(), generator.integers(3, 6)) for name in names}
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


def behind_cord(masks, spacing):
    cord = masks.get("SpinalCord", masks.get("Brainstem"))
    strip = np.zeros((SIDE,) * 3, bool)
    if cord is None:
        return strip
    slices, (z, y) = np.flatnonzero(cord.any((0, 1))), np.indices((SIDE, SIDE))
    for k in range(SIDE):
        depth, side = np.nonzero(cord[:, :, np.clip(k, slices[0], slices[-1])])
        margin = BESIDE_CORD_MM / spacing[1]
        strip[:, :, k] = (z >= depth.mean()) & (y >= side.min() - margin) & (y <= side.max() + margin)
    return strip


def goals(masks, spacing):
    """Voxels looked at, and for each the Gy beyond and below which dose costs, and how much on either side."""
    targets = [name for name in TARGETS if name in masks]
    possible, target = masks["possible_dose_mask"], np.any([masks[name] for name in targets], axis=0)
    structure = np.any([mask for name, mask in masks.items() if name != "possible_dose_mask"], axis=0)
    size = (possible & ~target).sum() / (possible & target).sum()
    gray, above = np.full(target.shape, float(TISSUE[1])), np.full(target.shape, TISSUE[0] / np.sqrt(size))
    limits = [(behind_cord(masks, spacing), BEHIND_CORD)]
    limits += [(masks[name], limit) for name, limit in ORGANS.items() if name in masks]
    for mask, (weight, free) in limits:
        gray[mask], above[mask] = free, above[mask] + weight
    above[~structure] *= 4
    for name in targets:
        gray[masks[name]], above[masks[name]] = TARGETS[name], OVERDOSE
    i, j, k = np.indices(target.shape)
    seen = possible & np.where(structure, (i + j + k) % 2 == 0, (i | j | k) % 2 == 0)
    return np.argwhere(seen), gray[seen], target[seen] * 1.0, above[seen]


def unevenness(fields):
    """For each cell the weighed sum over its neighbours of both, and of twice the cell."""
    fields = fields.reshape(9, CELLS, CELLS)
    weights = np.array([[0, ACROSS, 0], [ALONG, 0, ALONG], [0, ACROSS, 0]])[None]
    near = scipy.ndimage.convolve(fields, weights, mode="constant")
    same = fields * scipy.ndimage.convolve(np.ones_like(fields), weights, mode="constant")
    return (near + same).ravel(), 2 * same.ravel()


def plan(ct, masks, spacing):
    voxels, gray, below, above = goals(masks, spacing)
    isocentre = np.argwhere(np.any([masks[name] for name in TARGETS if name in masks], axis=0)).mean(0)
    matrix = influence(ct, spacing, isocentre, voxels)
    fields = (matrix[below > 0] > 0).multiply(gray[below > 0][:, None]).tocsc().max(axis=0).toarray().ravel()
    for _ in range(ROUNDS):
        dose = matrix @ spread(fields)
        weight = np.where(dose < gray, below, above)
        pulled, held = unevenness(fields)
        wanted = spread(matrix.T @ (weight * gray)) + pulled
        given = spread(matrix.T @ (weight * dose)) + held + FIELD_COST
        fields *= np.divide(wanted, given, out=np.ones_like(given), where=(given > 0) & (fields > 0)) ** 1.5
    dose, possible = np.zeros(ct.shape), masks["possible_dose_mask"]
    dose[possible] = influence(ct, spacing, isocentre, np.argwhere(possible)) @ spread(fields)
    return dose


def test_plan_equals_scipy(voxloom, draw, tmp_path):
    ct, masks, spacing = patient(tmp_path / "pt_1", np.random.default_rng(draw.randrange(2 ** 32)))
    voxloom("convert", f"{tmp_path}/pt_1:plan", tmp_path / "plan.npy")
    ours, theirs = np.load(tmp_path / "plan.npy"), plan(ct, masks, spacing)
    assert theirs.max() > 40
    assert abs(ours - theirs).max() < 1e-2  # Gy; ours is float32
