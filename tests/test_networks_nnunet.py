"""nnU-Net's networks against dynamic-network-architectures and against files that it wrote."""
import json

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from safetensors.torch import save_file

architectures = pytest.importorskip("dynamic_network_architectures.architectures.unet")
from dynamic_network_architectures.building_blocks.residual_encoders import ResidualEncoder
from dynamic_network_architectures.building_blocks.unet_decoder import UNetDecoder

from networks import BACKWARD, FORWARD, assert_computes_the_same, relative, run_ours

NORMS = {"instance": (torch.nn.InstanceNorm3d, {"eps": 1e-5, "affine": True}), "batch": (torch.nn.BatchNorm3d, {})}
ACTIVATIONS = {"auto": torch.nn.LeakyReLU, "relu": torch.nn.ReLU, "prelu": torch.nn.PReLU, "elu": torch.nn.ELU,
               "gelu": torch.nn.GELU, "silu": torch.nn.SiLU}


def draw_options(draw, architecture, norm):
    stages = draw.choice([2, 3, 4])
    strides = [[1, 1, 1]] + [[draw.choice([1, 2]), 2, 2] for _ in range(stages - 1)]
    options = {"architecture": architecture, "in_channels": draw.choice([1, 2]), "out_channels": draw.choice([1, 3]),
               "filters": [draw.choice([3, 4, 7]) * 2 ** draw.choice([0, 1]) for _ in range(stages)], "strides": strides,
               "kernels": [[draw.choice([1, 3]), 3, draw.choice([3, 5])] for _ in range(stages)],
               "convs_per_stage": [draw.choice([1, 2, 3]) for _ in range(stages)],
               "decoder_convs": [draw.choice([1, 2]) for _ in range(stages - 1)], "norm": norm,
               "activation": draw.choice(list(ACTIVATIONS)), "conv_bias": draw.choice([True, False]),
               "deep_supervision": draw.choice([True, False])}
    patch = [int(draw.choice([2, 3]) * step) for step in np.prod(strides, axis=0)]
    return options, patch


def arguments_of(options):
    norm, norm_arguments = NORMS[options["norm"]]
    return dict(input_channels=options["in_channels"], n_stages=len(options["filters"]), features_per_stage=options["filters"],
                conv_op=torch.nn.Conv3d, kernel_sizes=options["kernels"], strides=options["strides"],
                conv_bias=options["conv_bias"], norm_op=norm, norm_op_kwargs=norm_arguments,
                nonlin=ACTIVATIONS[options["activation"]], nonlin_kwargs={})


def plain(options):
    return architectures.PlainConvUNet(
        **arguments_of(options), n_conv_per_stage=options["convs_per_stage"], num_classes=options["out_channels"],
        n_conv_per_stage_decoder=options["decoder_convs"][::-1], deep_supervision=options["deep_supervision"])


def residual(options, gated):
    network = architectures.ResidualEncoderUNet(
        **arguments_of(options), n_blocks_per_stage=options["convs_per_stage"], num_classes=options["out_channels"],
        n_conv_per_stage_decoder=options["decoder_convs"][::-1], deep_supervision=options["deep_supervision"])
    if gated:  # the class has no such argument, its encoder has
        network.encoder = ResidualEncoder(**arguments_of(options), n_blocks_per_stage=options["convs_per_stage"],
                                          return_skips=True, squeeze_excitation=True)
        network.decoder = UNetDecoder(network.encoder, options["out_channels"], options["decoder_convs"][::-1],
                                      options["deep_supervision"])
    return network


def outputs_of(network, image):
    outputs = network(image)
    return outputs if isinstance(outputs, list) else [outputs]


@pytest.mark.parametrize("norm, training", [("instance", False), ("batch", False), ("batch", True)])
def test_unet_with_its_coarser_heads(voxloom, draw, tmp_path, norm, training):
    options, patch = draw_options(draw, "unet", norm)
    assert_computes_the_same(voxloom, draw, tmp_path, plain(options), options, patch, 2, training, outputs_of)


@pytest.mark.parametrize("norm, gated", [("instance", False), ("instance", True), ("batch", True)])
def test_resenc_unet_with_its_coarser_heads(voxloom, draw, tmp_path, norm, gated):
    options, patch = draw_options(draw, "resenc_unet", norm)
    options["squeeze_excitation"] = "channel" if gated else "none"
    assert_computes_the_same(voxloom, draw, tmp_path, residual(options, gated), options, patch, 2, norm == "batch", outputs_of)


def by_formula(shape, function, number, step):
    n, c, z, y, x = np.meshgrid(*map(np.arange, shape), indexing="ij")
    return function(number * (n + 1) * (c + 1) + step[0] * z + step[1] * y + step[2] * x).astype(np.float32)


@pytest.mark.parametrize("name", ["resenc_plain", "resenc_se_ds"])
def test_resenc_unet_gives_the_recorded_values(voxloom, shared, tmp_path, name):
    folder = shared / "data" / "golden_nets"
    golden = next(c for c in json.loads((folder / "manifest.json").read_text())["configurations"] if c["name"] == name)
    made, tensors = golden["constructor"], load_file(folder / golden["file"])
    options = {"architecture": "resenc_unet", "in_channels": made["input_channels"], "out_channels": made["num_classes"],
               "filters": made["features_per_stage"], "kernels": made["kernel_sizes"], "strides": made["strides"],
               "convs_per_stage": made["n_blocks_per_stage"], "decoder_convs": made["n_conv_per_stage_decoder"][::-1],
               "conv_bias": made["conv_bias"], "deep_supervision": made["deep_supervision"],
               "squeeze_excitation": "channel" if "encoder_extra" in golden else "none"}
    recorded = {key: values for key, values in tensors.items() if key in golden["outputs"] or key.startswith("grad.")}
    save_file({key: torch.from_numpy(values) for key, values in tensors.items() if key not in recorded}, tmp_path / "w.safetensors",
              {key: value if isinstance(value, str) else json.dumps(value) for key, value in options.items()})
    image = by_formula(golden["input_shape"], np.sin, 0.1, (0.37, 0.21, 0.13))
    expected = [recorded[key] for key in ["output", "output_ds1"] if key in recorded]
    factors = [by_formula(output.shape, np.cos, 0.3, (0.17, 0.29, 0.23)) for output in expected]
    outputs, gradients = run_ours(voxloom, tmp_path, image, factors)
    for ours, output in zip(outputs, expected):
        assert relative(ours, output) < FORWARD
    names = [key.removeprefix("grad.") for key in recorded if key.startswith("grad.")]
    assert len(names) == golden.get("gradients", {"count": 0})["count"]
    for key in names:
        assert relative(gradients[key], recorded["grad." + key]) < BACKWARD, key
