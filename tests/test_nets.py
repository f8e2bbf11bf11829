"""Networks against the originals: the same weights must give the same outputs."""
import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

architectures = pytest.importorskip("dynamic_network_architectures.architectures.unet")


def original(draw, channels, classes, stages, entry=(1, 1, 1)):
    """nnU-Net's plain U-Net of a random shape, every parameter drawn afresh (biases and norms are zero and one else).
    Where the first stage has a stride, `entry`, its output would be as coarse: transposed convolutions bring it back."""
    features = [draw.choice([4, 6, 8]) * 2**s for s in range(stages)]
    strides = [list(entry)] + [[draw.choice([1, 2]), 2, 2] for _ in range(stages - 1)]
    kernels = [[draw.choice([1, 3]), 3, 3] for _ in range(stages)]
    convs = [draw.choice([1, 2, 3]) for _ in range(stages)]
    torch.manual_seed(draw.randrange(2**31))
    network = architectures.PlainConvUNet(
        channels, stages, features, torch.nn.Conv3d, kernels, strides, convs, classes, convs[-2::-1], conv_bias=True,
        norm_op=torch.nn.InstanceNorm3d, norm_op_kwargs={"eps": 1e-5, "affine": True}, nonlin=torch.nn.LeakyReLU,
        nonlin_kwargs={"inplace": True}, deep_supervision=False)
    if entry != (1, 1, 1):
        network.decoder.seg_layers = torch.nn.ModuleList(
            torch.nn.ConvTranspose3d(width, classes, entry, entry) for width in features[-2::-1])
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.3 if parameter.ndim == 1 else (2 / parameter[0].numel()) ** 0.5)
    options = {"architecture": "unet", "in_channels": channels, "out_channels": classes, "filters": features,
               "strides": strides, "kernels": kernels, "convs_per_stage": convs}
    return network.eval(), {key: str(value) for key, value in options.items()}


def assert_forward_is_the_same(voxloom, network, weights, tmp_path, image):
    np.save(tmp_path / "in.npy", image.numpy())
    voxloom("weights", "forward", weights, tmp_path / "in.npy", tmp_path / "out.npy")
    with torch.no_grad():
        expected = network(image).numpy()
    ours = np.load(tmp_path / "out.npy")
    assert ours.shape == expected.shape and ours.dtype == np.float32
    # float32 sums in another order, over some ten layers
    assert np.abs(ours - expected).max() < 1e-4 * max(1, np.abs(expected).max())


@pytest.mark.parametrize("stages", [2, 3, 4])
def test_unet_computes_what_the_original_computes(voxloom, draw, tmp_path, stages):
    channels, classes = draw.choice([1, 2]), draw.choice([1, 3])
    network, metadata = original(draw, channels, classes, stages)
    save_file({name: tensor.clone() for name, tensor in network.state_dict().items()}, tmp_path / "w.safetensors", metadata)
    step = 2 ** (stages - 1)
    image = torch.randn(2, channels, 2 * step, 3 * step, 2 * step)
    assert_forward_is_the_same(voxloom, network, tmp_path / "w.safetensors", tmp_path, image)


@pytest.mark.parametrize("entry", [(2, 2, 2), (1, 2, 2)])
def test_a_unet_that_enters_by_a_stride_predicts_every_voxel(voxloom, draw, tmp_path, entry):
    channels, classes = draw.choice([1, 2]), draw.choice([1, 3])
    network, _ = original(draw, channels, classes, 3, entry)
    torch.save(network.state_dict(), tmp_path / "theirs.pt")
    voxloom("weights", "import", tmp_path / "theirs.pt", "--output", tmp_path / "ours.safetensors")  # recognised
    image = torch.randn(2, channels, 8, 16, 24)
    with torch.no_grad():
        assert network(image).shape[2:] == image.shape[2:]
    assert_forward_is_the_same(voxloom, network, tmp_path / "ours.safetensors", tmp_path, image)


def test_options_may_come_from_the_command_line(voxloom, draw, tmp_path):
    network, metadata = original(draw, 1, 1, 2)
    save_file({name: tensor.clone() for name, tensor in network.state_dict().items()}, tmp_path / "w.safetensors")
    np.save(tmp_path / "in.npy", np.zeros((1, 1, 4, 4, 4), np.float32))
    overrides = [f"{key}={value}" for key, value in metadata.items()]
    voxloom("weights", "forward", tmp_path / "w.safetensors", tmp_path / "in.npy", tmp_path / "out.npy", *overrides)
    with torch.no_grad():
        expected = network(torch.zeros(1, 1, 4, 4, 4)).numpy()
    assert np.allclose(np.load(tmp_path / "out.npy"), expected, atol=1e-4)


def test_sizes_that_do_not_fit_are_named(voxloom, draw, tmp_path):
    network, metadata = original(draw, 1, 1, 3)
    save_file({name: tensor.clone() for name, tensor in network.state_dict().items()}, tmp_path / "w.safetensors", metadata)
    np.save(tmp_path / "in.npy", np.zeros((1, 1, 8, 10, 8), np.float32))
    result = voxloom("weights", "forward", tmp_path / "w.safetensors", tmp_path / "in.npy", tmp_path / "out.npy", check=False)
    assert result.returncode == 1
    assert "8x8x8 and 8x12x8" in result.stderr


def test_show_lists_what_safetensors_lists(voxloom, tmp_path):
    tensors = {"a": torch.arange(6).reshape(2, 3), "b": torch.zeros(4, dtype=torch.bfloat16)}
    save_file(tensors, tmp_path / "t.safetensors", {"made": "here"})
    shown = json.loads(voxloom("weights", "show", tmp_path / "t.safetensors", "--json").stdout)
    assert shown["metadata"] == {"made": "here"}
    assert {t["name"]: (t["dtype"], t["shape"]) for t in shown["tensors"]} == {"a": ("I64", [2, 3]), "b": ("BF16", [4])}
    assert set(load_file(tmp_path / "t.safetensors")) == set(tensors)
