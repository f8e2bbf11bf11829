"""Volumes larger than the memory, interruptions, other grids and formats, and what challenges expect."""
import json
import pathlib
import re
import signal
import subprocess
import tarfile
import time
import zipfile

import nibabel
import numpy as np
import pytest
import tifffile
from conftest import PROGRAM
from inference import make_network, random_image, values_of


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    return make_network(tmp_path_factory.mktemp("network"), "net", 5)


def peak_of(arguments):
    """Peak of resident memory in MiB, and what was said. From /proc: wait4's figure begins with Python's own."""
    child = subprocess.Popen([PROGRAM, *map(str, arguments)], stderr=subprocess.PIPE, text=True)
    peak = 0
    while child.poll() is None:
        status = pathlib.Path(f"/proc/{child.pid}/status").read_text()
        peak = max([peak, *(int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmHWM"))])
        time.sleep(0.01)
    return child.returncode, peak, child.stderr.read()


def test_memory_is_bounded_by_the_option_and_not_by_the_volume(network, tmp_path):
    """32 times as many voxels, the same bound of 36 MiB, for a volume of 32 MiB whose sums are 256 MiB."""
    arguments = ["predict", network[1], "--output", tmp_path, "inference.window=16,64,64", "--overlap", 0,
                 "inference.memory_gb=0.035", "data.target=segmentation", "inference.skip_below=1",
                 "data.preprocess=[{name: zscore}]"]
    peaks = {}
    for depth in (16, 512):
        image = np.lib.format.open_memmap(tmp_path / f"{depth}.npy", "w+", np.uint8, (depth, 256, 256))
        image[:, 100:110, 100:110] = 3
        del image
        status, peaks[depth], said = peak_of([*arguments, tmp_path / f"{depth}.npy"])
        assert status == 0, said
        with tifffile.TiffFile(tmp_path / f"{depth}.tif") as file:
            assert file.series[0].shape == (depth, 256, 256)
    assert peaks[512] - peaks[16] < 36, peaks


def test_intensities_of_ct_are_prepared_slab_by_slab(network, voxloom, draw, tmp_path):
    """What `init` writes for CT takes little more memory than the plain voxels; the whole would take 3 MiB more."""
    np.save(tmp_path / "case.npy", (1000 * random_image(draw, (100, 64, 64))).astype(np.int16))
    arguments = ["predict", network[1], tmp_path / "case.npy", "inference.window=8,64,64", "--overlap", 0,
                 "system.num_cpus=1"]
    steps = {"plain": "[]", "ct": "[{name: clip, min: -900.5, max: 700}, {name: normalize, mean: 30, std: 250}]"}
    least = {}
    for name, chain in steps.items():
        refused = voxloom(*arguments, "--output", tmp_path, f"data.preprocess={chain}", "inference.memory_gb=0.001",
                          check=False)
        least[name] = float(re.search(r"inference.memory_gb=([0-9.]+)", refused.stderr).group(1))
    assert least["ct"] - least["plain"] < 0.0025
    for name, bound in {"slabs": least["ct"], "whole": 1}.items():
        voxloom(*arguments, "--output", tmp_path / name, f"data.preprocess={steps['ct']}", f"inference.memory_gb={bound}")
    got, expected = (tifffile.imread(tmp_path / name / "case.tif") for name in ("slabs", "whole"))
    assert got.shape == (100, 64, 64) and np.array_equal(got, expected)


def bytes_read(arguments):
    """By the whole program, as its last look at /proc found it."""
    child = subprocess.Popen([PROGRAM, *map(str, arguments)], stderr=subprocess.PIPE, text=True)
    count = 0
    while child.poll() is None:
        text = pathlib.Path(f"/proc/{child.pid}/io").read_text()
        count = max([count, *(int(line.split()[1]) for line in text.splitlines() if line.startswith("rchar"))])
        time.sleep(0.005)
    assert child.returncode == 0, child.stderr.read()
    return count


def test_a_packed_mask_is_unpacked_once_and_not_for_each_window(network, voxloom, draw, tmp_path):
    """Twice, to be exact: where it lies is looked up first. 700 windows; packed image and mask take 0.3 MB."""
    generator = np.random.default_rng(draw.randrange(2**32))
    noise = generator.integers(0, 256, (64, 48, 48)).astype(np.uint8)
    for name, array in {"image": noise, "mask": generator.integers(0, 256, noise.shape).astype(np.uint8)}.items():
        array[:, :10, :5] = 0
        nibabel.save(nibabel.Nifti1Image(array.transpose(), np.eye(4)), tmp_path / f"{name}.nii.gz")
    arguments = ["predict", network[1], tmp_path / "image.nii.gz", "inference.window=8,16,16", "--overlap", 0.5,
                 f"inference.mask={tmp_path}/mask.nii.gz", "inference.skip_below=300"]
    refused = voxloom(*arguments, "--output", tmp_path, "inference.memory_gb=0.0001", check=False)
    least = float(re.search(r"inference.memory_gb=([0-9.]+)", refused.stderr).group(1))
    slabs, whole = (bytes_read([*arguments, "--output", tmp_path / str(bound), f"inference.memory_gb={bound}"])
                    for bound in (least, 1))
    assert slabs - whole < 2e6


def test_too_little_memory_names_what_is_enough(network, voxloom, tmp_path):
    np.save(tmp_path / "case.npy", np.zeros((64, 200, 200), np.float32))
    arguments = ["predict", network[1], tmp_path / "case.npy", "--output", tmp_path, "inference.window=16,16,16",
                 "--overlap", 0, "inference.skip_below=1"]
    refused = voxloom(*arguments, "inference.memory_gb=0.001", check=False)
    assert refused.returncode == 1 and "case.npy" in refused.stderr
    least = re.search(r"inference.memory_gb=([0-9.]+)", refused.stderr).group(1)
    voxloom(*arguments, f"inference.memory_gb={least}")


def kill_within_second_case(command, folder):
    """Slices of case b that were done by then; None where the program was faster."""
    child = subprocess.Popen([PROGRAM, *map(str, command)], stderr=subprocess.DEVNULL)
    progress = folder / ".b.tif.progress"
    while child.poll() is None and not progress.exists():
        time.sleep(0.002)
    child.send_signal(signal.SIGKILL)
    child.wait()
    in_time = progress.exists() and not (folder / "b.tif").exists()
    return json.loads(progress.read_text())["slices"] if in_time else None


def test_an_interrupted_prediction_goes_on_and_gives_the_same_bytes(network, voxloom, draw, tmp_path):
    for name in ("a", "b"):
        np.save(tmp_path / f"{name}.npy", random_image(draw, (80, 34, 30)))
    options = ["inference.window=16,16,16", f"inference.batch_size={draw.choice([1, 3])}", "--overlap",
               draw.choice([0.5, 0.6]), *draw.choice([[], ["--probabilities", "data.target=segmentation"]])]
    files = [tmp_path / "a.npy", tmp_path / "b.npy"]
    for attempt in range(5):
        cut = tmp_path / f"cut{attempt}"
        command = ["predict", network[1], *files, "--output", cut, *options]
        done = kill_within_second_case(command, cut)
        if done is not None:
            break
    assert 0 < done < 80
    command[1] = command[1].parent / ".." / command[1].parent.name / command[1].name  # the same weights
    said = voxloom(*command).stderr
    assert f"goes on at slice {done} of 80" in said and "a.tif is there already" in said
    assert sorted(path.name for path in cut.iterdir()) == ["a.tif", "b.tif"]
    voxloom("predict", network[1], *files, "--output", tmp_path / "whole", *options)
    for name in ("a.tif", "b.tif"):
        assert (cut / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_other_settings_start_afresh(network, voxloom, draw, tmp_path):
    np.save(tmp_path / "a.npy", random_image(draw, (24, 16, 16)))
    common = ["predict", network[1], tmp_path / "a.npy", "--output", tmp_path / "out", "inference.window=8,8,8"]
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / ".a.tif.progress").write_text('{"fingerprint": "other", "slices": 8, "finished": false}')
    (tmp_path / "out" / ".a.tif.unfinished").write_bytes(bytes(24 * 16 * 16 * 4))
    said = voxloom(*common).stderr
    assert "goes on" not in said and "starts afresh: 8 slices" in said
    theirs = values_of(network[0], np.load(tmp_path / "a.npy"), [8, 8, 8], 0.5)[0]
    assert np.abs(tifffile.imread(tmp_path / "out" / "a.tif") - theirs).max() <= 1e-4


def trilinear(values, shape):
    """Centres of voxels over the same region, as torch's interpolate without align_corners."""
    import torch
    return torch.nn.functional.interpolate(torch.from_numpy(values)[None, None], list(shape), mode="trilinear",
                                           align_corners=False)[0, 0].numpy()


@pytest.mark.parametrize("suffix", ["nii.gz", "nrrd", "tif"])
def test_another_resolution_returns_to_the_grid_of_the_file(network, voxloom, draw, tmp_path, suffix):
    shape = tuple(draw.randrange(12, 25) for _ in range(3))
    image = random_image(draw, shape)
    affine = np.diag([0.5, 0.75, 2.0, 1.0])
    affine[:3, 3] = 5, -7, 11
    nibabel.save(nibabel.Nifti1Image(image.transpose(2, 1, 0), affine), tmp_path / "scan.nii.gz")
    small = [draw.randrange(8, 14) for _ in range(3)]
    voxloom("predict", network[1], tmp_path / "scan.nii.gz", "--output", tmp_path / "out", "inference.window=8,8,8",
            f"data.preprocess=[{{name: resample, shape: {small}}}]", f"inference.format={suffix}")
    seen = trilinear(image, small)
    theirs = trilinear(values_of(network[0], seen, [8, 8, 8], 0.5)[0], shape)
    file = tmp_path / "out" / f"scan.{suffix}"
    if suffix == "nii.gz":
        written = nibabel.load(file)
        assert np.allclose(written.affine, affine)
        ours = np.asarray(written.dataobj).transpose(2, 1, 0)
    else:
        voxloom("convert", file, tmp_path / "back.npy")
        ours = np.load(tmp_path / "back.npy")
        told = json.loads(voxloom("inspect", file, "--json").stdout)
        assert told["spacing"] == pytest.approx([2.0, 0.75, 0.5])
    assert ours.shape == shape and np.abs(ours - theirs).max() <= 1e-3


def test_turned_axes_come_back(network, voxloom, draw, tmp_path):
    """A file whose axes point other ways, predicted in RAS: each voxel's value stays at its place."""
    shape = tuple(draw.randrange(12, 20) for _ in range(3))
    image = random_image(draw, shape)  # x, y, z of a file in RAS
    ras = nibabel.Nifti1Image(image, np.diag([1.5, 0.75, 2.0, 1.0]))
    codes = draw.choice([("L", "P", "S"), ("A", "S", "R"), ("I", "L", "A")])
    turn = nibabel.orientations.axcodes2ornt(codes)
    other = ras.as_reoriented(nibabel.orientations.ornt_transform(nibabel.io_orientation(ras.affine), turn))
    assert nibabel.aff2axcodes(other.affine) == codes
    for name, file in (("ras", ras), ("other", other)):
        nibabel.save(file, tmp_path / f"{name}.nii")
        voxloom("predict", network[1], tmp_path / f"{name}.nii", "--output", tmp_path / "out", "inference.window=8,8,8",
                "data.orientation=RAS", "inference.format=nii")
    written = nibabel.load(tmp_path / "out" / "other.nii")
    assert written.shape == other.shape and np.allclose(written.affine, other.affine)
    assert nibabel.aff2axcodes(written.affine) == codes
    back = nibabel.as_closest_canonical(written)
    assert np.array_equal(back.get_fdata(), nibabel.load(tmp_path / "out" / "ras.nii").get_fdata())


def test_the_vesuvius_submission(network, voxloom, draw, tmp_path):
    shapes = {"12": (20, 24, 16), "305": (9, 16, 30)}
    for name, shape in shapes.items():
        tifffile.imwrite(tmp_path / f"{name}.tif", random_image(draw, shape, np.uint8), compression="lzw")
    arguments = ["predict", network[1], *(tmp_path / f"{name}.tif" for name in shapes), "--output", tmp_path / "out",
                 "inference.window=8,16,16", "inference.submission=vesuvius", "data.target=segmentation"]
    voxloom(*arguments)
    with zipfile.ZipFile(tmp_path / "out" / "submission.zip") as archive:
        assert archive.testzip() is None and sorted(archive.namelist()) == ["12.tif", "305.tif"]
        archive.extractall(tmp_path / "unpacked")
    for name, shape in shapes.items():
        with tifffile.TiffFile(tmp_path / "unpacked" / f"{name}.tif") as file:
            labels = file.asarray()
            assert file.pages[0].compression == tifffile.COMPRESSION.LZW and len(file.pages) == shape[0]
        assert labels.shape == shape and labels.dtype == np.uint8 and set(np.unique(labels)) <= {0, 1}
    for option in ("--probabilities", "inference.postprocess=[{name: watershed}]"):
        refused = voxloom(*arguments, option, check=False)
        assert refused.returncode == 1 and "uint8" in refused.stderr


@pytest.fixture(scope="module")
def patients(tmp_path_factory):
    from conftest import SHARED
    archive = SHARED / "data" / "openkbp" / "openkbp-40train-8validation.tar.xz"
    if not archive.exists():
        pytest.skip("the real patients are not here")
    folder = tmp_path_factory.mktemp("patients")
    with tarfile.open(archive) as files:
        files.extractall(folder, [one for one in files if re.search(r"/pt_20[13]/", one.name)], filter="data")
    found = sorted(path for path in folder.rglob("pt_20?") if path.is_dir())
    assert [path.name for path in found] == ["pt_201", "pt_203"]
    return found


def read_sparse(file):
    """As the challenge's evaluator does: indices and values of a table with one column, `data`."""
    pandas = pytest.importorskip("pandas")
    table = pandas.read_csv(file, index_col=0)
    assert list(table.columns) == ["data"]
    return table.index.to_numpy(), table["data"].to_numpy()


def test_the_openkbp_submission(patients, voxloom, tmp_path):
    pandas = pytest.importorskip("pandas")
    network = make_network(tmp_path, "dose", 7, (2, 4), (11, 1))
    voxloom("predict", network[1], *patients, "--output", tmp_path / "out", "inference.window=128,128,128",
            "inference.submission=openkbp", "inference.format=npy")
    with zipfile.ZipFile(tmp_path / "out" / "submission.zip") as archive:
        assert archive.testzip() is None and sorted(archive.namelist()) == ["pt_201.csv", "pt_203.csv"]
        archive.extractall(tmp_path / "csv")
    for patient in patients:
        file = tmp_path / "csv" / f"{patient.name}.csv"
        assert file.read_bytes().startswith(b",data\n")
        indices, values = read_sparse(file)
        mask = read_sparse(patient / "possible_dose_mask.csv")[0]
        dose = np.load(tmp_path / "out" / f"{patient.name}.npy").ravel()
        expected = mask[dose[mask] > 0]
        assert np.array_equal(indices, expected) and np.array_equal(values, dose[expected].astype(np.float64))
        table = pandas.DataFrame({"data": dose[expected].astype(np.float64)}, index=expected)
        assert file.read_text() == table.to_csv(), "the challenge's own code writes it so"
    scores = json.loads(voxloom("evaluate", "--task", "dose", "--prediction", tmp_path / "csv", "--reference",
                                patients[0].parent, "--json").stdout)
    assert set(scores["cases"]) == {"pt_201", "pt_203"}
    beside = json.loads(voxloom("evaluate", "--task", "dose", "--prediction", tmp_path / "out", "--reference",
                                patients[0].parent, "--json").stdout)
    assert beside["cases"] == scores["cases"]  # where volumes lie beside the CSVs, these count
    for patient in patients:
        mask = read_sparse(patient / "possible_dose_mask.csv")[0]
        truth, mine = np.zeros(128**3), np.zeros(128**3)
        for array, file in ((truth, patient / "dose.csv"), (mine, tmp_path / "csv" / f"{patient.name}.csv")):
            indices, values = read_sparse(file)
            array[indices] = values
        error = np.abs(truth - mine).sum() / len(mask)
        assert scores["cases"][patient.name]["dose_error"] == pytest.approx(error, rel=1e-6)
