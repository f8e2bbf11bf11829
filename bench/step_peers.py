"""A training step on the CPU beside the same step in eager PyTorch: nnU-Net's plain U-Net, Dice + BCE, AdamW, clipping.

The bar: ours costs at most 1.10 times the peer's, by the median of interleaved pairs.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import time

import torch
from dynamic_network_architectures.architectures.unet import PlainConvUNet

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from pairs import compare, interleave, verdict  # noqa: E402

BAR = 1 / 1.10  # compare() says how many times our cost the peer's is


def peer_step(filters, patch, batch, threads):
    torch.set_num_threads(threads)
    network = PlainConvUNet(1, len(filters), filters, torch.nn.Conv3d, 3, [1] + [2] * (len(filters) - 1), 2, 1, 2,
                            conv_bias=True, norm_op=torch.nn.InstanceNorm3d,
                            norm_op_kwargs={"eps": 1e-5, "affine": True}, nonlin=torch.nn.LeakyReLU,
                            nonlin_kwargs={"inplace": True})
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3, weight_decay=1e-5)
    image = torch.randn(batch, 1, *patch)
    target = (torch.rand(batch, 1, *patch) < 0.3).float()
    axes = (1, 2, 3, 4)

    def step():
        start = time.perf_counter()
        logits = network(image)
        probability = torch.sigmoid(logits)
        overlap = (2 * (probability * target).sum(axes) + 1e-5) / (probability.sum(axes) + target.sum(axes) + 1e-5)
        loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, target) + 1 - overlap.mean()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 12)
        optimizer.step()
        loss.item()
        return time.perf_counter() - start

    return step


def our_step(program, filters, patch, batch, threads):
    command = [program, "bench", "step", "model.filters=" + ",".join(map(str, filters)),
               "data.patch_size=" + ",".join(map(str, patch)), f"data.batch_size={batch}", "--threads", str(threads),
               "--steps", "3", "--warm-up", "2", "--json"]

    def step():
        result = subprocess.run(command, check=True, capture_output=True, text=True)
        return json.loads(result.stdout)[0]["median_ms"] / 1000

    return step


def three_of(step):
    """The median of three, as ours is."""
    return lambda: sorted(step() for _ in range(3))[1]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", default=str(pathlib.Path(__file__).parent.parent / "build" / "voxloom"))
    parser.add_argument("--filters", type=int, nargs="+", default=[16, 32, 64])
    parser.add_argument("--patch", type=int, nargs=3, default=[48, 48, 48])
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--pairs", type=int, default=15)
    arguments = parser.parse_args()
    shape = (arguments.filters, arguments.patch, arguments.batch, arguments.threads)
    costs = interleave({"voxloom": our_step(arguments.program, *shape), "torch": three_of(peer_step(*shape))},
                       arguments.pairs)
    result = compare(costs, "voxloom", "torch")
    print(f"voxloom {result['ours'] * 1000:.1f} ms, torch {result['peer'] * 1000:.1f} ms a step; ours costs "
          f"{1 / result['ratio']:.3f} times the peer's ({1 / result['high']:.3f} to {1 / result['low']:.3f}, "
          f"{result['pairs']} pairs); at most 1.10: {verdict(result, BAR)}")
    return 0 if verdict(result, BAR) == "holds" else 1


if __name__ == "__main__":
    sys.exit(main())
