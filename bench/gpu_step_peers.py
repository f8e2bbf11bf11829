"""A PyTorch training step on a GPU, as strong as PyTorch makes it: bf16 autocast, channels last, network and loss in one
torch.compile. Takes turns with another program: for each line of standard input one block of steps is timed.

    gpu_step_peers.py WORKLOAD MODE STEPS

MODE is best (compiled; the whole step replayed as a CUDA graph where that is faster), default (compiled), graphs
(compiled in mode reduce-overhead) or eager. Every answer is a line of JSON. The first comes once everything is compiled;
cuDNN's kernels are timed and chosen after the first line of input, so that many peers may compile at once and each still
chooses alone.
"""
import json
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn


def plain_unet(filters, outputs, deep_supervision):
    from dynamic_network_architectures.architectures.unet import PlainConvUNet
    stages = len(filters)
    return PlainConvUNet(1, stages, filters, nn.Conv3d, 3, [1] + [2] * (stages - 1), 2, outputs, 2, conv_bias=True,
                         norm_op=nn.InstanceNorm3d, norm_op_kwargs={"eps": 1e-5, "affine": True},
                         nonlin=nn.LeakyReLU, nonlin_kwargs={"inplace": True}, deep_supervision=deep_supervision)


def basic_unet():
    from monai.networks.nets import BasicUNet
    return BasicUNet(spatial_dims=3, in_channels=1, out_channels=1, features=(32, 64, 128, 256, 512, 32))


def residual_unet():
    from monai.networks.nets import UNet
    return UNet(spatial_dims=3, in_channels=1, out_channels=1, channels=(32, 64, 128, 256, 512),
                strides=(2, 2, 2, 2), num_res_units=2, norm="batch")


def dose_block(inputs, outputs, up, norm=True, dropout=0.0):
    layer = nn.ConvTranspose3d if up else nn.Conv3d
    parts = [layer(inputs, outputs, kernel_size=4, stride=2, padding=1, bias=False)]
    if norm:
        parts.append(nn.BatchNorm3d(outputs, eps=1e-3, momentum=0.01))
    if dropout:
        parts.append(nn.Dropout3d(dropout))
    parts.append(nn.ReLU(inplace=True) if up else nn.LeakyReLU(0.2, inplace=True))
    return nn.Sequential(*parts)


class DoseGenerator(nn.Module):
    """The OpenKBP challenge's network: six strided convolutions down, six transposed up, a smoothed dose."""

    def __init__(self, width=64, channels=11):
        super().__init__()
        widths = [width * factor for factor in (1, 2, 4, 8, 8, 8)]
        self.down = nn.ModuleList(dose_block(before, after, up=False, norm=level < 5)
                                  for level, (before, after) in enumerate(zip([channels] + widths, widths)))
        before = [widths[5]] + [2 * width for width in widths[4:0:-1]]
        self.up = nn.ModuleList(dose_block(inputs, outputs, up=True, dropout=0.2 if level in (1, 3) else 0.0)
                                for level, (inputs, outputs) in enumerate(zip(before, widths[4::-1])))
        self.last = nn.ConvTranspose3d(2 * width, 1, kernel_size=4, stride=2, padding=1)
        self.smooth = nn.AvgPool3d(3, stride=1, padding=1, count_include_pad=False)

    def forward(self, image):
        skips = []
        for block in self.down:
            image = block(image)
            skips.append(image)
        values = self.up[0](skips.pop())
        for block in self.up[1:]:
            values = block(torch.cat([values, skips.pop()], dim=1))
        values = self.last(torch.cat([values, skips.pop()], dim=1))
        return F.relu(self.smooth(values.float()))


def overlap_and_entropy(outputs, target):
    """Soft Dice (without the background) + cross entropy, half the weight at each coarser output."""
    total, weight = 0, 1.0
    for logits in outputs if isinstance(outputs, (list, tuple)) else [outputs]:
        size = logits.shape[2:]
        wanted = target if target.shape[2:] == size else F.interpolate(target, size=size, mode="nearest")
        logits = logits.float()
        if logits.shape[1] == 1:
            entropy = F.binary_cross_entropy_with_logits(logits, wanted)
            probability = torch.sigmoid(logits)
        else:
            entropy = F.cross_entropy(logits, wanted[:, 0].long())
            probability = torch.softmax(logits, dim=1)[:, 1:]
        axes = (2, 3, 4)
        both = (probability * wanted).sum(axes)
        either = probability.sum(axes) + wanted.sum(axes)
        total = total + weight * (entropy + 1 - ((2 * both + 1e-5) / (either + 1e-5)).mean())
        weight /= 2
    return total


def mean_absolute_error(output, target):
    return (output - target).abs().mean()


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.01, momentum=0.99, nesterov=True)


def adam(parameters):
    return torch.optim.Adam(parameters, lr=2e-4, betas=(0.5, 0.999), fused=True, capturable=True)


def adamw(parameters):
    return torch.optim.AdamW(parameters, lr=1e-3, fused=True, capturable=True)


WIDE = [32, 64, 128, 256, 320, 320]
WORKLOADS = {  # network, shape of the image, loss, optimizer
    "nnunet_128_b2": (lambda: plain_unet(WIDE, 2, True), (2, 1, 128, 128, 128), overlap_and_entropy, sgd),
    "mlperf_128_b7": (lambda: plain_unet(WIDE, 3, False), (7, 1, 128, 128, 128), overlap_and_entropy, sgd),
    "vesuvius_b2": (lambda: plain_unet(WIDE[:4], 1, True), (2, 1, 72, 136, 136), overlap_and_entropy, adamw),
    "kbp64_b2": (DoseGenerator, (2, 11, 128, 128, 128), mean_absolute_error, adam),
    "basic_112_b4": (basic_unet, (4, 1, 112, 112, 112), overlap_and_entropy, adamw),
    "monaiunet_112_b4": (residual_unet, (4, 1, 112, 112, 112), overlap_and_entropy, adamw),
}


def make_step(workload, mode, device):
    make, shape, loss, optimizer_of = WORKLOADS[workload]
    torch.manual_seed(0)
    last = torch.channels_last_3d
    network = make().to(device, memory_format=last).train()
    optimizer = optimizer_of(network.parameters())
    image = torch.randn(shape, device=device).contiguous(memory_format=last)
    target = (torch.rand((shape[0], 1) + shape[2:], device=device) > 0.7).float()

    def forward(image, target):
        return loss(network(image), target)

    if mode != "eager":
        forward = torch.compile(forward, mode="reduce-overhead" if mode == "graphs" else None)

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device, torch.bfloat16):
            value = forward(image, target)
        value.backward()
        optimizer.step()

    return step, sum(parameter.numel() for parameter in network.parameters())


def captured(step):
    """The whole step, optimizer included, as one CUDA graph."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def milliseconds_a_step(step, steps):
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(steps):
        step()
    torch.cuda.synchronize()
    return 1e3 * (time.perf_counter() - start) / steps


def choose_kernels(step):
    """cuDNN times its kernels for every shape. What it took while compiling stays out of the way: its choices are kept
    by shape and by whether TF32 is allowed, and that changes here."""
    torch.backends.cudnn.benchmark = torch.backends.cudnn.allow_tf32 = True
    for _ in range(6):
        step()
    torch.cuda.synchronize()


def faster_of(step):
    """The step or its captured form, and what to call it."""
    try:
        replay = captured(step)
    except RuntimeError as error:
        return step, f"compiled (no capture: {str(error).splitlines()[0][:200]})"
    return min((step, "compiled"), (replay, "compiled, captured"), key=lambda one: milliseconds_a_step(one[0], 10))


def answer(**fields):
    print(json.dumps(fields), flush=True)


def main():
    workload, mode, steps = sys.argv[1], sys.argv[2], int(sys.argv[3])
    torch.backends.cudnn.benchmark = torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_tf32 = True
    step, parameters = make_step(workload, mode, "cuda")
    start = time.perf_counter()
    step()
    torch.cuda.synchronize()
    answer(compiled=True, first_step_s=time.perf_counter() - start, parameters=parameters)
    sys.stdin.readline()
    torch.cuda.reset_peak_memory_stats()
    choose_kernels(step)
    gpu_peak_gb, variant = torch.cuda.max_memory_allocated() / 1e9, mode
    if mode == "best":
        step, variant = faster_of(step)
    answer(ready=True, variant=variant)
    for _ in sys.stdin:
        answer(median_ms=milliseconds_a_step(step, steps), gpu_peak_gb=gpu_peak_gb)


if __name__ == "__main__":
    main()
