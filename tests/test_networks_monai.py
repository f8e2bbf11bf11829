"""MONAI's UNet, BasicUNet and DynUNet against MONAI."""
import pytest
import torch

nets = pytest.importorskip("monai.networks.nets")
blocks = pytest.importorskip("monai.networks.blocks")

from networks import assert_computes_the_same

KERNELS = [3, 3, (1, 3, 3), (3, 1, 5)]
NORMS = {"batch": "batch", "instance": "instance", "group": ("group", {"num_groups": 2})}
ACTIVATIONS = {"prelu": "prelu", "relu": "relu", "elu": "elu", "gelu": "gelu", "silu": "swish", "leaky_relu": "leakyrelu"}


def triple(value):
    return [value] * 3 if isinstance(value, int) else list(value)


def patch_for(draw, strides, least=2):
    """Sizes that fit, not all the same, with a few voxels left at the bottom: norms over one or two only show noise."""
    sizes = [draw.choice([least, least + 1]) for _ in range(3)]
    for stride in strides:
        sizes = [size * step for size, step in zip(sizes, triple(stride))]
    return sizes


class UpsampleModeUNet(nets.UNet):
    """MONAI's UNet with its UpSample block in place of the transposed convolutions, as Connectomics has it."""

    def __init__(self, upsample, **arguments):
        self.upsample = upsample
        super().__init__(**arguments)

    def _get_up_layer(self, in_channels, out_channels, strides, is_top):
        up = blocks.UpSample(3, in_channels, out_channels, strides, mode=self.upsample, interp_mode="linear", align_corners=True)
        if self.num_res_units == 0:
            return up
        unit = blocks.ResidualUnit(3, out_channels, out_channels, 1, self.kernel_size, 1, act=self.act, norm=self.norm,
                                   last_conv_only=is_top)
        return torch.nn.Sequential(up, unit)


def monai_unet(draw, norm="batch", units=2, upsample="deconv"):
    levels = draw.choice([2, 3, 4])
    channels = [draw.choice([2, 4, 6] if norm == "group" else [3, 4, 5]) * 2 ** draw.choice([0, 1]) for _ in range(levels)]
    strides = [2 if upsample != "deconv" else draw.choice([2, 2, (1, 2, 2), 1]) for _ in range(levels - 1)]
    kernel, up_kernel = draw.choice(KERNELS), draw.choice(KERNELS)
    activation = draw.choice(["prelu", "prelu", "relu", "elu", "gelu"])
    options = {"architecture": "monai_unet", "in_channels": draw.choice([1, 3]), "out_channels": 2 if norm == "group" else draw.choice([1, 3]),
               "filters": channels, "strides": [triple(s) for s in strides], "num_res_units": units, "norm": norm,
               "norm_groups": 2, "activation": activation, "kernels": [triple(kernel)] * levels,
               "up_kernels": [triple(up_kernel)] * (levels - 1), "upsample": {"nontrainable": "trilinear"}.get(upsample, upsample),
               "conv_bias": True if upsample != "deconv" else draw.choice([True, True, False])}
    arguments = dict(spatial_dims=3, in_channels=options["in_channels"], out_channels=options["out_channels"], channels=channels,
                     strides=strides, kernel_size=kernel, up_kernel_size=up_kernel, num_res_units=units, norm=NORMS[norm],
                     act=ACTIVATIONS[activation], bias=options["conv_bias"])
    network = nets.UNet(**arguments) if upsample == "deconv" else UpsampleModeUNet(upsample, **arguments)
    return network, options, patch_for(draw, strides, 3)


@pytest.mark.parametrize("norm, training", [("batch", False), ("batch", True), ("instance", False), ("group", True)])
def test_monai_unet_with_residual_units(voxloom, draw, tmp_path, norm, training):
    network, options, patch = monai_unet(draw, norm, units=draw.choice([1, 2, 3]))
    assert_computes_the_same(voxloom, draw, tmp_path, network, options, patch, samples=2, training=training)


def test_monai_unet_without_residual_units(voxloom, draw, tmp_path):
    network, options, patch = monai_unet(draw, draw.choice(["batch", "instance"]), units=0)
    assert_computes_the_same(voxloom, draw, tmp_path, network, options, patch, training=draw.choice([True, False]))


@pytest.mark.parametrize("upsample", ["nontrainable", "pixelshuffle"])
def test_monai_unet_without_transposed_convolutions(voxloom, draw, tmp_path, upsample):
    network, options, patch = monai_unet(draw, upsample=upsample, units=draw.choice([0, 1, 2]))
    assert_computes_the_same(voxloom, draw, tmp_path, network, options, patch)


@pytest.mark.parametrize("norm, upsample", [("instance", "deconv"), ("batch", "nontrainable"), ("group", "pixelshuffle")])
def test_monai_basic_unet3d_at_sizes_that_are_no_multiples(voxloom, draw, tmp_path, norm, upsample):
    features = [2 * draw.choice([1, 2, 3]) for _ in range(6)]
    activation = draw.choice(["auto", "relu", "prelu"])
    options = {"architecture": "monai_basic_unet3d", "in_channels": draw.choice([1, 2]), "out_channels": draw.choice([1, 3]),
               "filters": features, "norm": norm, "norm_groups": 2, "activation": activation,
               "upsample": {"nontrainable": "trilinear"}.get(upsample, upsample), "conv_bias": draw.choice([True, False])}
    network = nets.BasicUNet(
        3, options["in_channels"], options["out_channels"], features,
        act=("LeakyReLU", {"negative_slope": 0.1, "inplace": True}) if activation == "auto" else activation,
        norm=("instance", {"affine": True}) if norm == "instance" else NORMS[norm], bias=options["conv_bias"], upsample=upsample)
    patch = [draw.choice([32, 33, 35]) for _ in range(3)]
    assert_computes_the_same(voxloom, draw, tmp_path, network, options, patch, training=norm == "batch")


@pytest.mark.parametrize("residual, norm", [(False, "instance"), (True, "instance"), (True, "batch"), (False, "group")])
def test_dynunet_with_its_coarser_heads(voxloom, draw, tmp_path, residual, norm):
    stages = draw.choice([3, 4])
    filters = [2 * draw.choice([1, 2, 3]) for _ in range(stages)]
    kernels = [draw.choice(KERNELS) for _ in range(stages)]
    strides = [1] + [draw.choice([2, 2, (1, 2, 2)]) for _ in range(stages - 1)]
    heads = draw.choice([0, *range(1, stages - 1)])
    activation = draw.choice(["leaky_relu", "leaky_relu", "prelu", "relu"])
    # A norm takes back the scale of a 1x1x1 convolution of one channel: the gradient of its weights would be noise.
    options = {"architecture": "dynunet", "in_channels": draw.choice([2, 4] if residual else [1, 4]),
               "out_channels": draw.choice([1, 3]),
               "filters": filters, "kernels": [triple(k) for k in kernels], "strides": [triple(s) for s in strides],
               "norm": norm, "norm_groups": 2, "residual": residual, "trans_bias": draw.choice([True, False]),
               "deep_supervision": heads > 0, "deep_supervision_heads": max(1, heads), "activation": activation}
    network = nets.DynUNet(
        3, options["in_channels"], options["out_channels"], kernels, strides, strides[1:], filters,
        norm_name=("INSTANCE", {"affine": True}) if norm == "instance" else NORMS[norm], act_name=ACTIVATIONS[activation],
        deep_supervision=heads > 0, deep_supr_num=max(1, heads), res_block=residual, trans_bias=options["trans_bias"])

    def all_heads(net, image):
        stacked = net(image)  # in training the heads are enlarged and stacked: what they were before is kept beside
        return [stacked[:, 0] if stacked.ndim == 6 else stacked, *net.heads[:heads]]

    assert_computes_the_same(voxloom, draw, tmp_path, network, options, patch_for(draw, strides), samples=2,
                             training=norm == "batch", heads=all_heads)
