"""Sliding windows on the CPU beside MONAI's inferer with the same weights: a small plain U-Net, overlap 0.5, gaussian.

The bar: ours costs at most 1.0 times the peer's, by the median of interleaved pairs. Both outputs are compared first.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy as np
import torch
from dynamic_network_architectures.architectures.unet import PlainConvUNet
from monai.inferers import SlidingWindowInferer

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from pairs import compare, interleave, verdict  # noqa: E402

BAR = 1.0  # compare() says how many times our cost the peer's is


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", default=str(pathlib.Path(__file__).parent.parent / "build" / "voxloom"))
    parser.add_argument("--filters", type=int, nargs="+", default=[8, 16, 32])
    parser.add_argument("--side", type=int, default=96)
    parser.add_argument("--window", type=int, default=48)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--pairs", type=int, default=15)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    filters = arguments.filters
    network = PlainConvUNet(1, len(filters), filters, torch.nn.Conv3d, 3, [1] + [2] * (len(filters) - 1), 2, 2, 2,
                            conv_bias=True, norm_op=torch.nn.InstanceNorm3d,
                            norm_op_kwargs={"eps": 1e-5, "affine": True}, nonlin=torch.nn.LeakyReLU,
                            nonlin_kwargs={"inplace": True}).eval()
    image = torch.randn(1, 1, *[arguments.side] * 3)
    inferer = SlidingWindowInferer([arguments.window] * 3, arguments.batch, 0.5, "gaussian", progress=False)

    def peer():
        start = time.perf_counter()
        with torch.no_grad():
            peer.output = inferer(image, network)
        return time.perf_counter() - start

    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        torch.save(network.state_dict(), folder / "net.pt")
        np.save(folder / "image.npy", image[0, 0].numpy())
        subprocess.run([arguments.program, "weights", "import", folder / "net.pt", "--output",
                        folder / "net.safetensors", "data.preprocess=[]"], check=True, capture_output=True)
        command = [arguments.program, "bench", "infer", folder / "net.safetensors", folder / "image.npy",
                   "inference.window=" + ",".join([str(arguments.window)] * 3),
                   f"inference.batch_size={arguments.batch}", "--threads", str(arguments.threads), "--repeats", "1",
                   "--warm-up", "1", "--json", "--output", folder / "ours.npy"]

        def ours():
            result = subprocess.run(command, check=True, capture_output=True, text=True)
            return json.loads(result.stdout)[0]["median_ms"] / 1000

        costs = interleave({"voxloom": ours, "monai": peer}, arguments.pairs)
        difference = np.abs(np.load(folder / "ours.npy") - peer.output[0].numpy()).max()
    result = compare(costs, "voxloom", "monai")
    holds = verdict(result, BAR) == "holds" and difference <= 1e-4
    print(f"voxloom {result['ours'] * 1000:.0f} ms, MONAI {result['peer'] * 1000:.0f} ms; ours costs "
          f"{1 / result['ratio']:.3f} times the peer's ({1 / result['high']:.3f} to {1 / result['low']:.3f}, "
          f"{result['pairs']} pairs); largest difference {difference:.1e}; at most 1.0: {'holds' if holds else 'FAILS'}")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
