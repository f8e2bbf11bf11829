"""Networks whose packages are hard to install, written down once more from their descriptions, with the names that
their state dicts have. Slow and plain on purpose."""
import torch
from torch import nn
from torch.nn import functional as F

ACTIVATIONS = {"relu": nn.ReLU, "elu": nn.ELU, "leaky_relu": nn.LeakyReLU, "prelu": nn.PReLU, "silu": nn.SiLU}


class MedBlock(nn.Module):
    def __init__(self, width, out, expansion, kernel, way, grn):
        super().__init__()
        layer = nn.ConvTranspose3d if way == "up" else nn.Conv3d
        stride = 2 if way else 1
        self.way = way
        self.conv1 = layer(width, width, kernel, stride, kernel // 2, groups=width)
        self.norm = nn.GroupNorm(width, width)
        self.conv2, self.conv3 = nn.Conv3d(width, expansion * width, 1), nn.Conv3d(expansion * width, out, 1)
        self.res_conv = layer(width, out, 1, stride) if way else None
        if grn:
            self.grn_gamma = nn.Parameter(torch.zeros(1, expansion * width, 1, 1, 1))
            self.grn_beta = nn.Parameter(torch.zeros(1, expansion * width, 1, 1, 1))

    def forward(self, x):
        y = F.gelu(self.conv2(self.norm(self.conv1(x))))
        if hasattr(self, "grn_gamma"):
            strength = (y**2).sum((2, 3, 4), keepdim=True).sqrt()
            y = self.grn_gamma * y * strength / (strength.mean(1, keepdim=True) + 1e-6) + self.grn_beta + y
        y = self.conv3(y) + (x if self.res_conv is None else self.res_conv(x))
        return F.pad(y, (1, 0) * 3) if self.way == "up" else y


class Head(nn.Module):
    def __init__(self, width, classes):
        super().__init__()
        self.conv_out = nn.ConvTranspose3d(width, classes, 1)


class MedNeXt(nn.Module):
    def __init__(self, channels, classes, width, kernel, expansion, blocks, grn=False, deep=False):
        super().__init__()
        self.dummy_tensor = nn.Parameter(torch.ones(1))
        self.stem = nn.Conv3d(channels, width, 1)

        def stage(name, index, level):
            here = [MedBlock(width << level, width << level, expansion[index], kernel, None, grn)
                    for _ in range(blocks[index])]
            self.add_module(name, nn.Sequential(*here))

        for level in range(4):
            stage(f"enc_block_{level}", level, level)
            self.add_module(f"down_{level}", MedBlock(width << level, width << level + 1, expansion[level + 1], kernel,
                                                      "down", grn and level > 0))
            self.add_module(f"up_{level}", MedBlock(width << level + 1, width << level, expansion[8 - level], kernel,
                                                    "up", grn))
            stage(f"dec_block_{level}", 8 - level, level)
        stage("bottleneck", 4, 4)
        for level in range(5 if deep else 1):
            self.add_module(f"out_{level}", Head(width << level, classes))

    def forward(self, x):
        part = dict(self.named_children())
        x, skips = self.stem(x), []
        for level in range(4):
            skips.append(part[f"enc_block_{level}"](x))
            x = part[f"down_{level}"](skips[-1])
        levels = [self.bottleneck(x)]
        for level in (3, 2, 1, 0):
            levels.insert(0, part[f"dec_block_{level}"](part[f"up_{level}"](levels[0]) + skips[level]))
        return [part[f"out_{i}"].conv_out(x) for i, x in enumerate(levels) if f"out_{i}" in part]


def norm_of(kind, channels, groups):
    if kind == "group":
        return nn.GroupNorm(max(g for g in range(1, min(groups, channels) + 1) if channels % g == 0), channels)
    return {"batch": nn.BatchNorm3d, "instance": nn.InstanceNorm3d, "none": lambda _: nn.Identity()}[kind](channels)


class NormAct(nn.Module):
    def __init__(self, channels, style):
        super().__init__()
        self.norm, self.act = norm_of(style["norm"], channels, style["groups"]), ACTIVATIONS[style["activation"]]()

    def forward(self, x):
        return self.act(self.norm(x))


class RSBlock(nn.Module):
    def __init__(self, channels, width, kernel, style):
        super().__init__()

        def conv(inner):
            return nn.Conv3d(inner, width, kernel, padding=[k // 2 for k in kernel], bias=False)

        self.pre = nn.Sequential(NormAct(channels, style), conv(channels))
        self.res = nn.ModuleDict({"norm_act1": NormAct(width, style), "conv1": conv(width),
                                  "norm_act2": NormAct(width, style), "conv2": conv(width)})
        self.post = nn.Sequential(NormAct(width, style), conv(width))
        # In place, the first activation reaches the residual where no norm makes a tensor of its own.
        self.shared = style["norm"] == "none" and style["activation"] in ("relu", "elu", "leaky_relu")

    def forward(self, x):
        x = self.pre(x)
        active = self.res["norm_act1"](x)
        y = self.res["conv2"](self.res["norm_act2"](self.res["conv1"](active)))
        return self.post(y + (active if self.shared else x))


class Interpolation(nn.Module):
    def __init__(self, channels, factor):
        super().__init__()
        self.factor = factor
        z, y, _ = (2 * f - f % 2 for f in factor)
        half = (y + 1) // 2
        ramp = torch.tensor([1 - abs(i / half - (y - 1) / (2 * half)) for i in range(y)])
        self.register_buffer("weight", torch.outer(ramp, ramp).expand(channels, 1, z, y, y).clone())

    def forward(self, x):
        return F.conv_transpose3d(x, self.weight, stride=self.factor, padding=[f // 2 for f in self.factor],
                                  groups=x.shape[1])


class RSUNet(nn.Module):
    def __init__(self, channels, classes, widths, factors, style, flat=0, deep=False):
        super().__init__()
        kernels = [(1, 3, 3) if level < flat else (3, 3, 3) for level in range(len(widths))]
        self.factors = factors
        self.input_conv = RSBlock(channels, widths[0], kernels[0], style)
        self.down_blocks = nn.ModuleList(nn.ModuleDict({"conv": RSBlock(a, b, k, style)})
                                         for a, b, k in zip(widths, widths[1:], kernels[1:]))
        self.up_blocks = nn.ModuleList(
            nn.ModuleDict({"up": Interpolation(below, f), "proj": nn.Conv3d(below, width, 1, bias=False),
                           "conv": RSBlock(width, width, k, style)})
            for below, width, f, k in list(zip(widths[1:], widths, factors, kernels))[::-1])
        self.final_norm = NormAct(widths[0], style)
        self.output_head = nn.Conv3d(widths[0], classes, 1)
        if deep:
            self.ds_heads = nn.ModuleList(nn.Conv3d(width, classes, 1) for width in widths[:0:-1])

    def forward(self, x):
        x, skips, coarse = self.input_conv(x), [], []
        for factor, block in zip(self.factors, self.down_blocks):
            skips.append(x)
            x = block["conv"](F.max_pool3d(x, factor))
        for i, block in enumerate(self.up_blocks):
            if hasattr(self, "ds_heads"):
                coarse.insert(0, self.ds_heads[i](x))
            x = block["conv"](block["proj"](block["up"](x)) + skips.pop())
        return [self.output_head(self.final_norm(x))] + coarse


def single(channels, width, stride, activation, name):
    parts = nn.Sequential(nn.Conv3d(channels, width, 3, stride, 1), nn.InstanceNorm3d(width, affine=True), activation())
    return nn.ModuleDict({name: parts})


class CascadeHalf(nn.Module):
    def __init__(self, channels, widths, activation):
        super().__init__()
        self.encoder, self.decoder = nn.ModuleDict(), nn.ModuleDict()
        for i, width in enumerate(widths):
            self.encoder[f"encoder_{i + 1}"] = nn.Sequential(
                single(channels, width, 2 if i else 1, activation, "single_conv"),
                single(width, width, 1, activation, "single_conv"))
            channels = width
        for i in range(4, 0, -1):
            width = widths[i - 1]
            self.decoder[f"upconv_{i}"] = single(widths[i], width, 1, activation, "conv")
            self.decoder[f"decoder_conv_{i}"] = nn.Sequential(*[
                single(width if j else 2 * width, width, 1, activation, "single_conv") for j in range(2 if i > 1 else 1)])

    def forward(self, x):
        levels = []
        for stage in self.encoder.values():
            for block in stage:
                x = block["single_conv"](x)
            levels.append(x)
        for i in range(4, 0, -1):
            x = F.interpolate(x, scale_factor=2, mode="trilinear", align_corners=True)
            x = torch.cat([self.decoder[f"upconv_{i}"]["conv"](x), levels[i - 1]], 1)
            for block in self.decoder[f"decoder_conv_{i}"]:
                x = block["single_conv"](x)
        return x


class Cascade(nn.Module):
    """Both outputs, the second net's first."""

    def __init__(self, channels, classes, first, second, activation="relu"):
        super().__init__()
        self.net_A = CascadeHalf(channels, first, ACTIVATIONS[activation])
        self.net_B = CascadeHalf(channels + first[0], second, ACTIVATIONS[activation])
        self.conv_out_A, self.conv_out_B = nn.Conv3d(first[0], classes, 1), nn.Conv3d(second[0], classes, 1)

    def forward(self, x):
        guess = self.net_A(x)
        return [self.conv_out_B(self.net_B(torch.cat([guess, x], 1))), self.conv_out_A(guess)]


class OpenKbp(nn.Module):
    def __init__(self, channels, classes, f):
        super().__init__()
        widths = [f, 2 * f, 4 * f, 8 * f, 8 * f, 8 * f]
        self.e = nn.ModuleList(nn.Conv3d(a, b, 4, 2, 1, bias=False) for a, b in zip([channels] + widths, widths))
        self.eb = nn.ModuleList(nn.BatchNorm3d(w, 1e-3, 0.01) for w in widths[:5])
        inner = [8 * f] + [2 * w for w in widths[4:0:-1]]
        self.d = nn.ModuleList(nn.ConvTranspose3d(a, b, 4, 2, 1, bias=False) for a, b in zip(inner, widths[4::-1]))
        self.db = nn.ModuleList(nn.BatchNorm3d(w, 1e-3, 0.01) for w in widths[4::-1])
        self.o = nn.ConvTranspose3d(2 * f, classes, 4, 2, 1)

    def forward(self, x):
        levels = []
        for i, conv in enumerate(self.e):
            x = conv(x)
            x = F.leaky_relu(self.eb[i](x) if i < 5 else x, 0.2)
            levels.append(x)
        x = levels.pop()
        for conv, norm in zip(self.d, self.db):
            x = torch.cat([torch.relu(norm(conv(x))), levels.pop()], 1)
        return [torch.relu(F.avg_pool3d(self.o(x), 3, 1, 1, count_include_pad=False))]
