"""voxloom bench loss, and commands that have commands of their own."""
import json
import math

import pytest
import torch

SIZE = "12,20,24"


def bench(voxloom, *arguments):
    return json.loads(voxloom("bench", "loss", *arguments, "--size", SIZE, "--repeats", 3, "--json").stdout)


def test_every_loss_has_a_row(voxloom):
    listed = {row["name"] for row in json.loads(voxloom("list", "losses", "--json").stdout)}
    result = voxloom("bench", "loss", "--size", SIZE, "--repeats", 2, "--json")
    rows = {row["name"]: row for row in json.loads(result.stdout)}
    left_out = {line.split()[2].rstrip(":") for line in result.stderr.splitlines() if line.startswith("left out ")}
    assert rows.keys() | left_out == listed and not rows.keys() & left_out
    assert {"bce", "dice", "cldice", "surface_distance", "topology", "mae", "skeleton_recall"} <= rows.keys()
    for row in rows.values():
        assert row["median_ms"] > 0 and row["spread_ms"] >= 0 and row["repeats"] == 2
        assert 0 < row["forward_ms"] and row["extra_mb"] >= 0 and math.isfinite(row["value"]), row


def test_the_value_is_that_of_the_loss(voxloom):
    """Random logits of standard deviation 2 against a tenth of foreground: the mean BCE of such a draw."""
    (row,) = bench(voxloom, "bce")
    torch.manual_seed(0)
    logits = 2 * torch.randn(400000, dtype=torch.float64)
    label = (torch.rand(400000) < 0.1).double()
    expected = torch.nn.functional.binary_cross_entropy_with_logits(logits, label).item()
    assert row["value"] == pytest.approx(expected, rel=0.1)


def test_options_of_a_term_and_several_terms(voxloom):
    first, second = bench(voxloom, "cldice:iterations=2,erosion=cube", "cldice:iterations=12")
    assert first["name"] == "cldice:iterations=2,erosion=cube"
    assert first["value"] != second["value"]


def test_memory_grows_with_the_patch_and_is_counted(voxloom):
    """Each backward pass holds at least a gradient of the logits, 4 bytes a voxel."""
    result = voxloom("bench", "loss", "dice", "--size", "64,96,96", "--repeats", 1, "--json")
    (row,) = json.loads(result.stdout)
    assert 4 <= row["extra_bytes_per_voxel"] < 200, row


@pytest.mark.parametrize("arguments, words", [(["nosuch"], "nosuch"), (["dice:smooth"], "key=value"),
                                              (["dice:smoth=1"], "smooth"), (["dice", "--size", "8,8"], "size")])
def test_bad_terms(voxloom, arguments, words):
    result = voxloom("bench", "loss", *arguments, check=False)
    assert result.returncode in (1, 2) and words in result.stderr and result.stdout == ""


@pytest.mark.parametrize("command, parts", [("bench", ["data", "io", "loss", "step"]),
                                            ("weights", ["show", "import", "export", "forward"])])
def test_a_command_with_a_part_it_has_not_lists_the_parts(voxloom, command, parts):
    result = voxloom(command, "nosuch", check=False)
    assert result.returncode == 2 and "nosuch" in result.stderr
    for part in parts:
        (line,) = [line for line in result.stderr.splitlines() if line.split()[:1] == [part]]
        assert len(line.split()) > 2, line


@pytest.mark.parametrize("name, expected", [("noise.pt", "PyTorch"), ("noise.pth", "PyTorch"), ("noise.keras", "Keras"),
                                            ("noise.safetensors", "safetensors")])
def test_noise_is_called_what_its_name_promised(voxloom, tmp_path, draw, name, expected):
    (tmp_path / name).write_bytes(bytes([1]) + draw.randbytes(500))
    result = voxloom("weights", "show", tmp_path / name, check=False)
    assert result.returncode == 1 and expected in result.stderr and name in result.stderr


def test_deep_supervision_that_a_network_cannot_give_is_said_once(voxloom, tmp_path):
    recipe = tmp_path / "r.yaml"
    recipe.write_text("model: {architecture: monai_unet, deep_supervision: true, filters: [4, 8]}\ndata: {patch_size: 16}\n")
    result = voxloom("train", recipe, "--dry-run")
    assert result.stderr.count("model.deep_supervision has no effect") == 1
    assert "deep_supervision has no" not in voxloom("train", recipe, "model.architecture=unet", "--dry-run").stderr


@pytest.mark.parametrize("part", [[], ["loss"]])
def test_a_wrong_device_is_one_line_before_anything_is_measured(voxloom, part):
    refused = voxloom("bench", *part, "--device", "gpu0", check=False)
    assert refused.returncode == 1 and not refused.stdout
    assert refused.stderr == 'voxloom: --device is "gpu0"; it is cpu, cuda or cuda:N\n'
