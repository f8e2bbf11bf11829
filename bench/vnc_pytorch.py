#!/usr/bin/env python3
"""The network of recipes/mitochondria/vnc.yaml in PyTorch, on the batches that Voxloom trained on.

    bench/vnc_pytorch.py --data recipes/mitochondria/data --output scores.json [--steps 600] [--program build/voxloom]

Voxloom trains the recipe and writes its batches and first weights (`--export-batches`); PyTorch starts from the same
weights and sees the same batches with the same loss, optimizer, schedule, clipping and averaging. Both predict the test
part as one window, mirrored eight times, and are scored by `voxloom evaluate`. The result can be recorded by
tools/recipe_scores.py. Needs PyTorch and NumPy, nothing else.
"""
import argparse
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY / "tools"))
import recipe_scores  # noqa: E402

FILTERS = [32, 64, 128, 256, 320]
STRIDES = [(1, 1, 1), (1, 2, 2), (1, 2, 2), (1, 2, 2), (2, 2, 2)]
KERNELS = [(1, 3, 3), (1, 3, 3), (1, 3, 3), (3, 3, 3), (3, 3, 3)]
BATCH, LR, WEIGHT_DECAY, CLIP, AVERAGE, WARMUP, WARMUP_START = 4, 1e-3, 1e-5, 12, 0.995, 100, 0.01
WINDOW = (20, 128, 640)  # the whole test part


class Layer(nn.Module):
    def __init__(self, inputs, outputs, kernel, stride):
        super().__init__()
        self.conv = nn.Conv3d(inputs, outputs, kernel, stride, [size // 2 for size in kernel])
        self.norm = nn.InstanceNorm3d(outputs, eps=1e-5, affine=True)

    def forward(self, x):
        return F.leaky_relu(self.norm(self.conv(x)), 0.01)


class Stage(nn.Module):
    def __init__(self, inputs, outputs, kernel, stride):
        super().__init__()
        self.convs = nn.Sequential(Layer(inputs, outputs, kernel, stride), Layer(outputs, outputs, kernel, 1))

    def forward(self, x):
        return self.convs(x)


class Plain(nn.Module):
    """nnU-Net's plain U-Net with the names of its state dict; outputs finest first."""

    def __init__(self, filters):
        super().__init__()
        self.encoder, self.decoder = nn.Module(), nn.Module()
        widths = [1, *filters]
        self.encoder.stages = nn.ModuleList(nn.Sequential(Stage(widths[i], widths[i + 1], KERNELS[i], STRIDES[i]))
                                            for i in range(len(filters)))
        ups = list(range(len(filters) - 1, 0, -1))
        self.decoder.transpconvs = nn.ModuleList(nn.ConvTranspose3d(filters[i], filters[i - 1], STRIDES[i], STRIDES[i])
                                                 for i in ups)
        self.decoder.stages = nn.ModuleList(Stage(2 * filters[i - 1], filters[i - 1], KERNELS[i - 1], 1) for i in ups)
        self.decoder.seg_layers = nn.ModuleList(nn.Conv3d(filters[i - 1], 1, 1) for i in ups)

    def forward(self, x):
        skips = []
        for stage in self.encoder.stages:
            x = stage(x)
            skips.append(x)
        outputs = []
        for i, stage in enumerate(self.decoder.stages):
            x = stage(torch.cat([self.decoder.transpconvs[i](x), skips[-2 - i]], 1))
            outputs.insert(0, self.decoder.seg_layers[i](x))
        return outputs


def read_safetensors(path):
    raw = pathlib.Path(path).read_bytes()
    size = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:8 + size])
    return {name: torch.frombuffer(bytearray(raw[8 + size + at["data_offsets"][0]:8 + size + at["data_offsets"][1]]),
                                   dtype=torch.float32).reshape(at["shape"])
            for name, at in header.items() if name != "__metadata__" and at["dtype"] == "F32"}


def rate(step, steps):
    if step < WARMUP:
        return WARMUP_START + (1 - WARMUP_START) * step / WARMUP
    return 0.5 * (1 + math.cos(math.pi * (step - WARMUP) / max(1, steps - WARMUP)))


def loss_of(outputs, label):
    weights = [0.5**i for i in range(len(outputs))]
    total = 0
    for weight, logits in zip(weights, outputs):
        stride = [label.size(axis) // logits.size(axis) for axis in (2, 3, 4)]
        target = label[:, :, ::stride[0], ::stride[1], ::stride[2]].float()
        logits = logits.float()
        probability = torch.sigmoid(logits)
        dice = 1 - (2 * (probability * target).sum() + 1e-5) / (probability.sum() + target.sum() + 1e-5)
        total = total + weight / sum(weights) * (F.binary_cross_entropy_with_logits(logits, target) + dice)
    return total


def train(network, batches, steps, device):
    optimizer = torch.optim.AdamW(network.parameters(), LR, weight_decay=WEIGHT_DECAY)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: rate(step, steps))
    average = [parameter.detach().clone() for parameter in network.parameters()]
    for step in range(steps):
        image, label = (torch.from_numpy(np.load(batches / f"{BATCH * step}.{name}.npy")).to(device)
                        for name in ("image", "label"))
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            outputs = network(image)
        loss = loss_of(outputs, label)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), CLIP)
        optimizer.step()
        schedule.step()
        torch._foreach_lerp_(average, [parameter.detach() for parameter in network.parameters()], 1 - AVERAGE)
    for parameter, mean in zip(network.parameters(), average):
        parameter.data.copy_(mean)
    return loss.item()


@torch.no_grad()
def predicted(network, image, device):
    image = torch.from_numpy(image.astype(np.float32))[None, None].to(device)
    image = (image - image.mean()) / image.std(correction=0)
    logits = 0
    for mirrored in range(8):
        axes = [axis + 2 for axis in range(3) if mirrored >> axis & 1]
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            logits = logits + network(image.flip(axes))[0].flip(axes).float()
    return (logits[0, 0] > 0).cpu().numpy().astype(np.uint8)


def entry_of(case, scores, steps, seconds, arguments):
    return {"recipe": "mitochondria/vnc", "case": case, "run": "seed 0", "scores": scores, "steps": steps,
            "training_s": round(seconds, 1), "options": " ".join(arguments.options), "machine": recipe_scores.machine(),
            "commit": arguments.commit, "date": recipe_scores.datetime.date.today().isoformat()}


def compare(arguments, folder):
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    program, run, batches = arguments.program, folder / "run", folder / "batches"
    recipe = REPOSITORY / "recipes" / "mitochondria" / "vnc.yaml"
    started = time.monotonic()
    recipe_scores.called(program, "train", recipe, f"data.root={arguments.data}", "validation.every=0",
                         "training.max_epochs=1", f"training.iterations_per_epoch={arguments.steps}",
                         f"inference.window={','.join(map(str, WINDOW))}", "inference.overlap=0", *arguments.options,
                         "--run", run, "--export-batches", batches)
    ours_s = time.monotonic() - started
    recipe_scores.called(program, "predict", run / "checkpoints" / "last.safetensors", "--split", "test", "--output",
                         folder / "ours")
    torch.backends.cudnn.benchmark = True
    network = Plain(arguments.filters).to(device)
    network.load_state_dict(read_safetensors(batches / "weights.safetensors"))
    started = time.monotonic()
    print("PyTorch's last loss", train(network, batches, arguments.steps, device), flush=True)
    peer_s = time.monotonic() - started
    recipe_scores.called(program, "convert", f"{arguments.data}/vnc_test.h5:raw", folder / "raw.npy")
    (folder / "peer").mkdir()
    np.save(folder / "peer" / "mask.npy", predicted(network, np.load(folder / "raw.npy"), device))
    recipe_scores.called(program, "convert", folder / "peer" / "mask.npy", folder / "peer" / "vnc_test.tif")
    return [entry_of(case, recipe_scores.score_mitochondria(program, folder / place, arguments.data), arguments.steps,
                     seconds, arguments)
            for case, place, seconds in (("Voxloom, batches exported", "ours", ours_s),
                                         ("PyTorch on the same batches", "peer", peer_s))]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=lambda text: pathlib.Path(text).resolve(), required=True)
    parser.add_argument("--output", type=pathlib.Path, required=True)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--filters", type=lambda text: [int(word) for word in text.split(",")], default=FILTERS)
    parser.add_argument("--program", default=os.environ.get("VOXLOOM", REPOSITORY / "build" / "voxloom"))
    parser.add_argument("--commit", default=subprocess.run(["git", "-C", REPOSITORY, "rev-parse", "--short", "HEAD"],
                                                           capture_output=True, text=True).stdout.strip())
    parser.add_argument("--folder", help="for batches, 8 MB a step; without it a temporary one")
    arguments, arguments.options = parser.parse_known_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        entries = compare(arguments, pathlib.Path(folder))
    arguments.output.write_text(json.dumps(entries, indent=1))
    print(json.dumps(entries))


if __name__ == "__main__":
    sys.exit(main())
