"""Small datasets in every layout that `voxloom init` knows."""
import json
import subprocess

import nibabel
import numpy as np
import tifffile
from conftest import PROGRAM


def volume(generator, shape, labels=2):
    """An image and its label: blocks of every class, brighter where the class is higher."""
    label = np.zeros(shape, np.uint8)
    for value in range(1, labels):
        corner = [generator.integers(0, size // 2) for size in shape]
        label[tuple(slice(c, c + max(2, size // 3)) for c, size in zip(corner, shape))] = value
    return generator.normal(60 + 40 * label, 12).clip(1, 255).astype(np.uint8), label


def write_nifti(path, array, spacing=(1, 1, 1)):
    """`array` and `spacing` are z, y, x, as Voxloom has them; the file is x, y, z."""
    path.parent.mkdir(parents=True, exist_ok=True)
    image = nibabel.Nifti1Image(np.transpose(array), np.diag([*spacing[::-1], 1]))
    nibabel.save(image, path)


def write_tiff(path, array):
    path.parent.mkdir(parents=True, exist_ok=True)
    tifffile.imwrite(path, array, compression="lzw")


def nnunet(folder, generator, count=6, shape=(20, 24, 22), channels=("T1", "FLAIR")):
    for number in range(count):
        image, label = volume(generator, shape, 3)
        for channel, _ in enumerate(channels):
            write_nifti(folder / "imagesTr" / f"case_{number:03d}_{channel:04d}.nii.gz", image + channel)
        write_nifti(folder / "labelsTr" / f"case_{number:03d}.nii.gz", label)
    (folder / "imagesTr" / "._case_000_0000.nii.gz").write_bytes(b"left by another system")
    (folder / "dataset.json").write_text(json.dumps({
        "channel_names": {str(i): name for i, name in enumerate(channels)}, "numTraining": count,
        "labels": {"background": 0, "core": 1, "rim": 2}, "file_ending": ".nii.gz"}))
    return count


def datalist(folder, generator, count=6, folds=None, validation=0):
    entries = []
    for number in range(count):
        image, label = volume(generator, (20, 24, 22))
        write_nifti(folder / "imagesTr" / f"heart_{number}.nii.gz", image)
        write_nifti(folder / "labelsTr" / f"heart_{number}.nii.gz", label)
        entries.append({"image": f"./imagesTr/heart_{number}.nii.gz", "label": f"./labelsTr/heart_{number}.nii.gz"})
        if folds:
            entries[-1]["fold"] = number % folds
    listed = {"modality": {"0": "MRI"}, "labels": {"0": "background", "1": "left atrium"}, "numTraining": count,
              "training": entries[validation:], "test": ["./imagesTs/heart_99.nii.gz"]}
    if validation:
        listed["validation"] = entries[:validation]
    (folder / "dataset.json").write_text(json.dumps(listed))
    return count


def datalist_with_folds(folder, generator):
    return datalist(folder, generator, folds=3)


def datalist_with_validation(folder, generator):
    return datalist(folder, generator, validation=2)


def vesuvius(folder, generator, count=8):
    rows = ["id,scroll_id"]
    for number in range(count):
        image, label = volume(generator, (24, 24, 24))
        label[:4] = 2  # nobody labelled it
        write_tiff(folder / "train_images" / f"{1000 + number}.tif", image)
        write_tiff(folder / "train_labels" / f"{1000 + number}.tif", label)
        rows.append(f"{1000 + number},{number // 2}")
    write_tiff(folder / "deprecated_train_images" / "77.tif", image)
    (folder / "train.csv").write_text("\n".join([*rows, "77,0", ""]))
    return count


def openkbp(folder, generator):
    subprocess.run([PROGRAM, "synth", "dose", folder / "all", "--count", "3", "--format", "openkbp", "--seed",
                    str(generator.integers(1000))], check=True, capture_output=True)
    for name, patients in {"train-pats": ["pt_1", "pt_2"], "validation-pats": ["pt_3"]}.items():
        (folder / name).mkdir()
        for patient in patients:
            (folder / "all" / patient).rename(folder / name / patient)
    subprocess.run(["rm", "-r", folder / "all"], check=True)
    return 3


def folders(folder, generator, count=6, shape=(20, 24, 22)):
    for number in range(count):
        image, label = volume(generator, shape)
        write_tiff(folder / "images" / f"s{number}.tif", image)
        write_tiff(folder / "masks" / f"s{number}.tif", label * 255)
    return count


def pairs(folder, generator, count=3):
    for number in range(count):
        image, label = volume(generator, (20, 24, 22))
        write_tiff(folder / f"v{number}_image.tif", image)
        write_tiff(folder / f"v{number}_label.tif", label)
    return count


ALL = {kind.__name__: kind for kind in (nnunet, datalist, datalist_with_folds, datalist_with_validation, vesuvius,
                                        openkbp, folders, pairs)}
