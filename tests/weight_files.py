"""What the tests of weights share: what a file holds, how it is refused, what it computes, how trainers wrap it."""
import json

import numpy as np
import pytest
import torch

DTYPES = {torch.float32: "F32", torch.float64: "F64", torch.float16: "F16", torch.bfloat16: "BF16", torch.int64: "I64",
          torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL",
          torch.uint16: "U16", torch.float8_e4m3fn: "F8_E4M3", torch.complex64: "C64"}


def show(voxloom, path, *more):
    shown = json.loads(voxloom("weights", "show", path, "--json", *more).stdout)
    return {t["name"]: (t["dtype"], t["shape"]) for t in shown["tensors"]}


def expected_of(tensors):
    return {name: (DTYPES[t.dtype], list(t.shape)) for name, t in tensors.items()}


def refusal(voxloom, path, *command):
    """What the program says when it refuses a file: status 1, one sentence that names the file, nothing printed."""
    result = voxloom("weights", *(command or ("show",)), path, check=False)
    assert result.returncode == 1, (result.returncode, result.stderr)
    assert str(path) in result.stderr and result.stdout == ""
    return result.stderr


def unet_weights(draw, channels=1, classes=2, seed=None):
    """nnU-Net's plain U-Net, small and random."""
    unet = pytest.importorskip("dynamic_network_architectures.architectures.unet")
    torch.manual_seed(draw.randrange(2**31) if seed is None else seed)
    stages = draw.choice([2, 3])
    features = [draw.choice([3, 4, 6]) * 2**s for s in range(stages)]
    strides = [[1, 1, 1]] + [[draw.choice([1, 2]), 2, 2] for _ in range(stages - 1)]
    kernels = [[draw.choice([1, 3]), 3, 3] for _ in range(stages)]
    convs = [draw.choice([1, 2, 3]) for _ in range(stages)]
    network = unet.PlainConvUNet(
        channels, stages, features, torch.nn.Conv3d, kernels, strides, convs, classes,
        [draw.choice([1, 2]) for _ in range(stages - 1)], conv_bias=True, norm_op=torch.nn.InstanceNorm3d,
        norm_op_kwargs={"eps": 1e-5, "affine": True}, nonlin=torch.nn.LeakyReLU, nonlin_kwargs={"inplace": True})
    return network.eval()


def forward(voxloom, tmp_path, weights, image, *overrides):
    np.save(tmp_path / "in.npy", image.numpy())
    voxloom("weights", "forward", weights, tmp_path / "in.npy", tmp_path / "out.npy", *overrides)
    return np.load(tmp_path / "out.npy")


def assert_computes(voxloom, tmp_path, weights, network, image, *overrides):
    with torch.no_grad():
        expected = network(image)
    expected = (expected[0] if isinstance(expected, (list, tuple)) else expected).numpy()
    ours = forward(voxloom, tmp_path, weights, image, *overrides)
    assert ours.shape == expected.shape
    assert np.abs(ours - expected).max() < 1e-4 * max(1, np.abs(expected).max())


def wrapped(draw, state):
    """What trainers put around a state dict."""
    numbers = {"epoch": 7, "_best_ema": np.float64(0.5), "count": np.int64(3), "scaler": {"scale": 65536.0}}
    return draw.choice([
        lambda: state,
        lambda: dict(state),
        lambda: {"state_dict": {f"model.{k}": v for k, v in state.items()} | {"loss.weight": torch.ones(2)},
                 "pytorch-lightning_version": "2.0", "callbacks": {"best": {"score": torch.tensor(1.0)}}, **numbers},
        lambda: {"state_dict": {f"model._orig_mod.module.{k}": v for k, v in state.items()}, "optimizer_states": [
            {"state": {0: {"exp_avg": torch.ones(3)}}, "param_groups": [{"lr": 0.1, "betas": (0.9, 0.999)}]}]},
        lambda: {"network_weights": state, "optimizer_state": {"state": {0: {"momentum_buffer": torch.ones(3)}}},
                 "init_args": {"plans": {"a": [1, 2]}, "device": torch.device("cuda"), "fold": 0},
                 "logging": {"ema_fg_dice": [np.float64(0.1), np.float32(0.2)]}, "trainer_name": "nnUNetTrainer",
                 "inference_allowed_mirroring_axes": (0, 1, 2), **numbers},
        lambda: {"model": state, "ema": {k: torch.zeros_like(v) for k, v in state.items()}, **numbers},
        lambda: {"model_state_dict": {f"module.{k}": v for k, v in state.items()}, "shape": torch.Size([1, 2])},
    ])()
