"""Cuts the stack vnc_mitochondria.h5 (raw, mito; 20x704x640) along y into training, validation and test parts. Each gets
a dataset `objects` too: the mitochondria of the part, numbered (pieces that touch, corners included, are one).

    python recipes/mitochondria/split_vnc.py vnc_mitochondria.h5 recipes/mitochondria/data
"""
import pathlib
import sys

import h5py
import numpy as np
from scipy import ndimage

ROWS = {"vnc_train": (0, 512), "vnc_validation": (512, 576), "vnc_test": (576, 704)}


def main(source, folder):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with h5py.File(source) as stack:
        for name, (begin, end) in ROWS.items():
            raw, mito = (stack[dataset][:, begin:end] for dataset in ("raw", "mito"))
            objects = ndimage.label(mito, np.ones((3, 3, 3)))[0].astype(np.uint16)
            with h5py.File(folder / f"{name}.h5", "w") as part:
                for dataset, values in (("raw", raw), ("mito", mito), ("objects", objects)):
                    part.create_dataset(dataset, data=values, chunks=True, compression="gzip")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
