"""A network of the user's own: trained, stopped, resumed, stored and run like the built-in ones."""
import signal
import subprocess
import time

import numpy as np
import pytest
import tifffile
import torch
from conftest import PROGRAM
from safetensors.torch import load_file, save_file
from training import assert_same_weights, checkpoint, metadata, rows, tensors, write_training


class Own(torch.nn.Module):
    """A batch norm, dropout, a coarser output, a weight used twice, a buffer of integers and a frozen parameter."""

    def __init__(self, channels=1, classes=1, dropout=0.1):
        super().__init__()
        self.first = torch.nn.Conv3d(channels, 6, 3, padding=1)
        self.norm = torch.nn.BatchNorm3d(6)
        self.drop = torch.nn.Dropout3d(dropout)
        self.again = torch.nn.Conv3d(6, 6, 3, padding=1)
        self.head, self.coarse = torch.nn.Conv3d(6, classes, 1), torch.nn.Conv3d(6, classes, 1)
        self.scale = torch.nn.Parameter(torch.ones(1), requires_grad=False)
        self.register_buffer("shift", torch.zeros(1, dtype=torch.int64))

    def forward(self, x):
        x = self.drop(torch.nn.functional.elu(self.norm(self.first(x))))
        x = torch.nn.functional.elu(self.again(torch.nn.functional.elu(self.again(x))))
        return self.head(x) * self.scale + self.shift, self.coarse(torch.nn.functional.max_pool3d(x, 2))


def save_module(path, **options):
    torch.manual_seed(3)
    module = Own(**options)
    torch.jit.script(module).save(str(path))
    return module


def test_outputs_and_gradients_are_the_modules_own(voxloom, draw, tmp_path):
    module = save_module(tmp_path / "own.pt", channels=2, classes=3, dropout=0.0)
    torch.manual_seed(draw.randrange(2**31))
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    stored = {k: v.clone() for k, v in module.state_dict().items() if k != "shift"}
    options = {"architecture": "torchscript", "file": str(tmp_path / "own.pt"), "in_channels": "2", "out_channels": "3",
               "deep_supervision": "true"}
    save_file(stored, tmp_path / "w.safetensors", options)
    image, gradients = torch.randn(2, 2, 6, 8, 10), [torch.randn(2, 3, 6, 8, 10), torch.randn(2, 3, 3, 4, 5)]
    names = ["in", "g0", "g1"]
    for name, values in zip(names, [image] + gradients):
        np.save(tmp_path / f"{name}.npy", values.numpy())
    voxloom("weights", "forward", tmp_path / "w.safetensors", tmp_path / "in.npy", tmp_path / "out.npy", "--all-heads",
            "--training", "--output-gradients", f"{tmp_path}/g0.npy,{tmp_path}/g1.npy", "--gradients", tmp_path / "grads")
    outputs = module.train()(image)
    sum((o * g).sum() for o, g in zip(outputs, gradients)).backward()
    grads = load_file(tmp_path / "grads")
    expected = {name: p.grad for name, p in module.named_parameters() if p.requires_grad}
    assert set(grads) == set(expected)
    largest = max(gradient.abs().max().item() for gradient in expected.values())
    for name, gradient in expected.items():  # of a bias before a norm nothing but rounding remains
        allowed = 1e-4 * gradient.abs().max().item() + 1e-5 * largest
        assert torch.allclose(grads[name], gradient, rtol=1e-4, atol=allowed), name
    for file, output in zip(["out.npy", "out.1.npy"], outputs):
        assert np.allclose(np.load(tmp_path / file), output.detach(), atol=1e-5)


def test_an_output_scale_leaves_the_modules_weights_alone(voxloom, draw, tmp_path):
    recipe = write_training(tmp_path, draw)
    module = save_module(tmp_path / "own.pt")
    voxloom("train", recipe, "--run", tmp_path / "run", "model.architecture=torchscript", f"model.file={tmp_path}/own.pt",
            "model.output_scale=70", "training.max_epochs=1", "training.iterations_per_epoch=1", "training.lr=1e-12",
            "training.warmup_steps=0", "training.weight_decay=0")
    found = tensors(checkpoint(tmp_path / "run"))
    for name, parameter in module.named_parameters():
        assert np.allclose(found[f"model.{name}"], parameter.detach(), atol=1e-6), name


def test_a_run_that_was_stopped_goes_on_bit_for_bit_and_predicts(voxloom, draw, tmp_path):
    recipe = write_training(tmp_path, draw)
    save_module(tmp_path / "own.pt")
    options = ["model.architecture=torchscript", f"model.file={tmp_path}/own.pt", "model.deep_supervision=true",
               "training.max_epochs=2", "training.iterations_per_epoch=15", "monitor.log_every=1",
               "system.compute_threads=1", "training.ema=0.9", "inference.window=24,24,24"]
    voxloom("train", recipe, "--run", tmp_path / "whole", *options)
    process = subprocess.Popen([PROGRAM, "train", recipe, "--run", tmp_path / "parts", *options],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while process.poll() is None and not ((tmp_path / "parts" / "metrics.csv").exists() and rows(tmp_path / "parts")):
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    process.communicate()
    voxloom("train", recipe, "--run", tmp_path / "parts", *options)
    assert_same_weights(checkpoint(tmp_path / "whole"), checkpoint(tmp_path / "parts"))
    losses = [float(row["loss"]) for row in rows(tmp_path / "whole")]
    assert np.mean(losses[-5:]) < 0.9 * np.mean(losses[:5])
    stored = tensors(checkpoint(tmp_path / "whole"))
    assert stored["model.norm.num_batches_tracked"] == 30 and stored["model.scale"] == 1
    assert metadata(checkpoint(tmp_path / "whole"))["model.file"] == str(tmp_path / "own.pt")

    volume = np.load(tmp_path / "images" / "case_002.npy")[:24, :24, :24]
    np.save(tmp_path / "crop.npy", volume)
    voxloom("predict", tmp_path / "whole", tmp_path / "crop.npy", "--output", tmp_path / "out", "--probabilities")
    module = Own().eval()
    weights = {name[6:]: torch.from_numpy(np.asarray(stored["ema." + name[6:]] if "ema." + name[6:] in stored else values))
               for name, values in stored.items() if name.startswith("model.")}
    module.load_state_dict(weights, strict=False)
    image = (volume.astype(np.float64) - volume.mean()) / volume.std()
    with torch.no_grad():
        expected = torch.sigmoid(module(torch.from_numpy(image)[None, None].float())[0])[0, 0].numpy()
    assert np.abs(tifffile.imread(tmp_path / "out" / "crop.tif") - expected).max() < 1e-3


def broken_file(path):
    path.write_bytes(b"PK\x03\x04 nothing that torch has written")


def frozen(path):
    torch.jit.freeze(torch.jit.script(Own().eval())).save(str(path))


def half(path):
    torch.jit.script(Own().half()).save(str(path))


@pytest.mark.parametrize("make, extra, words", [
    (broken_file, [], ["cannot be read as a TorchScript module"]),
    (lambda path: None, [], ["there is no file"]),
    (frozen, [], ["no parameters to train"]),
    (half, [], ["Half", "float32"]),
    (lambda path: save_module(path, classes=2), [], ["[2, 2, 16, 16, 16]", "[2, 1, 16, 16, 16]"]),
    (lambda path: save_module(path, channels=3), [], ["fails on an image of [2, 1, 16, 16, 16]", "expected input"]),
    (save_module, ["training.precision=bf16-mixed"], ["float32", "training.precision"]),
    (save_module, ["model.use_checkpoint=true"], ["model.use_checkpoint"]),
])
def test_what_cannot_be_trained_is_said_in_a_sentence(voxloom, draw, tmp_path, make, extra, words):
    recipe = write_training(tmp_path, draw)
    make(tmp_path / "own.pt")
    result = voxloom("train", recipe, "--run", tmp_path / "run", "model.architecture=torchscript",
                     f"model.file={tmp_path}/own.pt", *extra, check=False)
    assert result.returncode == 1
    assert all(word in result.stderr for word in words), result.stderr
    assert "precision" in result.stderr or "use_checkpoint" in result.stderr or "own.pt" in result.stderr
    assert "Traceback" not in result.stderr
    assert len(result.stderr.strip().splitlines()[-1]) < 500
