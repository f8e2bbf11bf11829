"""A recipe's network, losses and optimizer in eager float32 PyTorch, on batches that Voxloom exported.

    loss_curve_peer.py RECIPE BATCHES WEIGHTS METRICS OUTPUT

RECIPE is a name of bench/loss_curves; METRICS is the run's metrics.csv, for the learning rate of each step. Writes one
loss a line. Networks are their packages' own (dynamic_network_architectures, MONAI) where there is one.
"""
import csv
import json
import pathlib
import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from gpu_step_peers import DoseGenerator, plain_unet


def pool(x):
    return F.max_pool3d(x, 3, 1, 1)


def erode(x, times=1):
    for _ in range(times):
        x = -pool(-x)
    return x


def skeleton(x, iterations=3):
    """As the public surface baseline has it."""
    found = 0
    for _ in range(iterations):
        eroded = erode(x)
        found = found + torch.relu(torch.relu(x - pool(eroded)) - found)
        x = eroded
    return found


def mean_of(values, valid):
    return (values * valid).sum() / valid.sum().clamp(min=1)


def dice(p, t, smooth):
    both, either = (p * t).sum((2, 3, 4)), p.sum((2, 3, 4)) + t.sum((2, 3, 4))
    return (1 - (2 * both + smooth) / (either + smooth)).mean()


def distance_below_two(mask):
    """Of each voxel to the nearest of the mask, over 2 and at most 1: within two voxels it is one of the 26 around."""
    result = torch.full_like(mask, 2.0)
    for steps, distance in ((3, 3**0.5), (2, 2**0.5), (1, 1.0), (0, 0.0)):
        kernel = torch.tensor([[[abs(z) + abs(y) + abs(x) <= steps for x in (-1, 0, 1)] for y in (-1, 0, 1)]
                               for z in (-1, 0, 1)], device=mask.device).to(mask)[None, None]
        near = F.conv3d(mask, kernel, padding=1) > 0.5
        result = torch.where(near, torch.full_like(result, distance), result)
    return result / 2


def label_at(label, logits):
    strides = [label.size(axis) // logits.size(axis) for axis in (2, 3, 4)]
    return label[:, :, ::strides[0], ::strides[1], ::strides[2]]


def surface_terms(logits, label):
    """The six terms of recipes/scroll_surface/train.yaml."""
    valid, t = (label != 2).float(), (label == 1).float()
    p = torch.sigmoid(logits) * valid
    entropy = F.binary_cross_entropy_with_logits(logits, t, reduction="none", pos_weight=torch.tensor(2.8).to(t))
    of_p, of_t = skeleton(p) * valid, skeleton(t) * valid
    precision = ((of_p * t).sum() + 1) / (of_p.sum() + 1)
    recall = ((of_t * p).sum() + 1) / (of_t.sum() + 1)
    inside = (t > 0.5).float()
    far = distance_below_two(inside) * p + distance_below_two(1 - inside) * (t - p * inside)
    a, b = erode(p, 5), erode(t, 5)
    gaps = mean_of(torch.relu(0.2 - a), valid) - mean_of(torch.relu(0.2 - b), valid)
    return (0.35 * mean_of(entropy, valid) + 0.35 * dice(p, t, 1)
            + 0.10 * (1 - 2 * precision * recall / (precision + recall))
            + 0.08 * mean_of((of_p - of_t).abs(), valid) + 0.07 * mean_of(far, valid)
            + 0.05 * (mean_of((a - b).abs(), valid) + gaps.abs()))


def surface_loss(outputs, batch):
    return sum(weight * surface_terms(logits, label_at(batch["label"], logits))
               for weight, logits in zip((1, 0.5, 0.5), outputs))


def nnunet_surface_loss(outputs, batch):
    total = 0
    for weight, logits in zip((0.5333333, 0.2666667, 0.1333333, 0.0666667), outputs):
        label = label_at(batch["label"], logits)
        valid, t = (label != 2).float(), (label == 1).float()
        entropy = F.binary_cross_entropy_with_logits(logits, t, reduction="none")
        total = total + weight * (mean_of(entropy, valid) + dice(torch.sigmoid(logits) * valid, t, 1e-5))
    valid, of_t = (batch["label"] != 2).float(), (batch["target.skeleton"] > 0).float()
    p, of_t = torch.sigmoid(outputs[0]) * valid, of_t * valid
    covered = ((p * of_t).sum((2, 3, 4)) + 1e-5) / (of_t.sum((2, 3, 4)) + 1e-5)
    return total + (1 - covered).mean()


def classes_loss(outputs, batch):
    """Softmax Dice without the background + cross entropy, half the weight at each coarser output."""
    outputs = outputs if isinstance(outputs, (list, tuple)) else [outputs]
    weights = [0.5**i for i in range(len(outputs))]
    total = 0
    for weight, logits in zip(weights, outputs):
        label = label_at(batch["label"], logits)[:, 0].long()
        t = F.one_hot(label, logits.size(1)).movedim(-1, 1).float()
        p = torch.softmax(logits, 1)
        total = total + weight / sum(weights) * (dice(p[:, 1:], t[:, 1:], 1e-5) + F.cross_entropy(logits, label))
    return total


def dose_loss(output, batch):
    return (output - batch["label"]).abs().mean()


class DoseNetwork(DoseGenerator):
    """Takes weights under the names that Voxloom gives its layers."""

    PLACES = {"e": "down.{}.0", "eb": "down.{}.1", "d": "up.{}.0", "db": "up.{}.1"}

    def load_state_dict(self, weights, strict=True):
        return super().load_state_dict({self.place(name): value for name, value in weights.items()}, strict)

    def place(self, name):
        layer, *rest = name.split(".")
        if layer == "o":
            return ".".join(["last", *rest])
        return ".".join([self.PLACES[layer].format(rest[0]), *rest[1:]])


def residual_unet():
    from monai.networks.nets import UNet
    return UNet(spatial_dims=3, in_channels=1, out_channels=2, channels=(16, 32, 64, 128, 256), strides=(2, 2, 2, 2),
                num_res_units=2, norm="batch", dropout=0.1)


def adamw(decay):
    return lambda parameters: torch.optim.AdamW(parameters, weight_decay=decay)


RECIPES = {  # network, loss, optimizer, clip_norm (0: off), epsilon as Keras means it (None: as torch)
    "scroll_surface/train": (lambda: plain_unet([32, 64, 128, 256], 1, True), surface_loss, adamw(1e-5), 1, None),
    "scroll_surface/nnunet": (lambda: plain_unet([32, 64, 128, 256, 320, 320], 1, True), nnunet_surface_loss,
                              lambda parameters: torch.optim.SGD(parameters, momentum=0.99, nesterov=True,
                                                                 weight_decay=3e-5), 12, None),
    "openkbp_dose/reference": (DoseNetwork, dose_loss,
                               lambda parameters: torch.optim.Adam(parameters, betas=(0.5, 0.999)), 0, 1e-7),
    "mitochondria/monai_unet": (residual_unet, classes_loss, adamw(0.01), 0.5, None),
    "hippocampus/train": (lambda: plain_unet([32, 64, 128, 256], 3, True), classes_loss, adamw(1e-5), 12, None),
}


def read_safetensors(path):
    raw = pathlib.Path(path).read_bytes()
    size = int.from_bytes(raw[:8], "little")
    tensors = {}
    for name, at in json.loads(raw[8:8 + size]).items():
        if name != "__metadata__" and at["dtype"] == "F32":
            begin, end = (8 + size + offset for offset in at["data_offsets"])
            tensors[name] = torch.frombuffer(bytearray(raw[begin:end]), dtype=torch.float32).reshape(at["shape"])
    return tensors


def load(network, path):
    missing, unexpected = network.load_state_dict(read_safetensors(path), strict=False)
    aliases = ("decoder.encoder", "all_modules", "num_batches_tracked")  # of modules that are listed twice, and counts
    wrong = [name for name in missing if not any(alias in name for alias in aliases)] + list(unexpected)
    if wrong:
        sys.exit(f"{path} and the network differ in {', '.join(wrong[:4])}")
    return network


def batches_in(folder, device):
    """In the order of their first samples."""
    files = {}
    for path in folder.glob("*.npy"):
        first, array = path.name[:-4].split(".", 1)
        files.setdefault(int(first), {})[array] = path
    for _, arrays in sorted(files.items()):
        yield {array: torch.from_numpy(np.load(path)).to(device) for array, path in arrays.items() if array != "mask"}


def main():
    name, batches, weights, metrics, output = sys.argv[1:]
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.set_num_threads(1 if device.type == "cuda" else torch.get_num_threads())
    make, loss_of, optimizer_of, clip, keras_epsilon = RECIPES[name]
    with open(metrics) as file:
        rates = [float(row["lr"]) for row in csv.DictReader(file) if row["split"] == "train"]
    network = load(make(), weights).to(device).train()
    optimizer = optimizer_of(network.parameters())
    losses = []
    for step, (rate, batch) in enumerate(zip(rates, batches_in(pathlib.Path(batches), device)), 1):
        for group in optimizer.param_groups:
            group["lr"] = rate
            if keras_epsilon:  # Keras adds it before the bias correction
                group["eps"] = keras_epsilon / (1 - group["betas"][1]**step)**0.5
        loss = loss_of(network(batch["image"]), batch)
        optimizer.zero_grad()
        loss.backward()
        if clip:
            nn.utils.clip_grad_norm_(network.parameters(), clip)
        optimizer.step()
        losses.append(loss.detach())
    values = torch.stack(losses).tolist()
    pathlib.Path(output).write_text("".join(f"{value:.9g}\n" for value in values))


if __name__ == "__main__":
    main()
