"""Networks of known weights for the tests of prediction: made in PyTorch, imported by the program."""
import subprocess

import numpy as np
import torch
from conftest import PROGRAM
from test_train import plain_network


def make_network(folder, name="net", seed=0, filters=(4, 8), channels=(1, 1), *options):
    """PyTorch's network and the file that the program predicts with: raw values out, no preprocessing."""
    torch.manual_seed(seed)
    network = plain_network(list(filters), *channels).eval()
    torch.save(network.state_dict(), folder / f"{name}.pt")
    file = folder / f"{name}.safetensors"
    subprocess.run([PROGRAM, "weights", "import", folder / f"{name}.pt", "--output", file, "data.preprocess=[]",
                    "data.target=regression", f"data.cache_dir={folder}/cache", *options], check=True,
                   capture_output=True)
    return network, file


def random_image(source, shape, kind=np.float32):
    values = np.random.default_rng(source.randrange(2**32)).normal(size=shape)
    return values.astype(kind) if kind == np.float32 else np.clip(128 + 40 * values, 0, 255).astype(kind)


def windows(shape, window, overlap):
    """Where MONAI's sliding window lies along each axis."""
    from monai.data.utils import dense_patch_slices
    from monai.inferers.utils import _get_scan_interval
    padded = [max(a, b) for a, b in zip(shape, window)]
    return dense_patch_slices(padded, window, _get_scan_interval(padded, window, 3, [overlap] * 3))


def values_of(network, image, window, overlap, weights=None, mode="gaussian", **options):
    from monai.inferers import sliding_window_inference
    with torch.no_grad():
        return sliding_window_inference(torch.from_numpy(image)[None, None].float(), window, 1, network, overlap,
                                        mode=mode, roi_weight_map=weights, **options)[0].numpy()
