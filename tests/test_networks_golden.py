"""Networks against golden outputs of the originals, and against plain PyTorch over shapes drawn at random."""
import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import peer_networks as peers

# What the golden files call the outputs, in our order: the finest first.
GOLDEN = {"mednext_k3": ["output"], "mednext_k3_grn": ["output"],
          "mednext_k5_ds": ["output", "output_ds1", "output_ds2", "output_ds3", "output_ds4"],
          "rsunet_122": ["output"], "rsunet_222_ds": ["output", "output_ds2", "output_ds1"],
          "c3d_cascade": ["output", "output_A"]}


def wave(shape, function, start, rates):
    """The formula of the golden inputs: function(start * (n + 1) * (c + 1) + rates . (z, y, x))."""
    n, c, z, y, x = np.ogrid[tuple(slice(size) for size in shape)]
    return function(start * (n + 1) * (c + 1) + rates[0] * z + rates[1] * y + rates[2] * x).astype(np.float32)


def flow(value):
    return json.dumps(value) if isinstance(value, (list, bool)) else str(value)


def run(voxloom, folder, weights, options, image, gradients, *flags):
    """Outputs and the gradients of the weights, as the program computes them."""
    save_file({name: tensor.contiguous() for name, tensor in weights.items()}, folder / "w.safetensors",
              {key: flow(value) for key, value in options.items()})
    np.save(folder / "in.npy", image)
    for i, gradient in enumerate(gradients):
        np.save(folder / f"g{i}.npy", gradient)
    names = ",".join(str(folder / f"g{i}.npy") for i in range(len(gradients)))
    voxloom("weights", "forward", folder / "w.safetensors", folder / "in.npy", folder / "out.npy", "--all-heads",
            "--output-gradients", names, "--gradients", folder / "grads.safetensors", *flags)
    files = [folder / "out.npy"] + [folder / f"out.{i}.npy" for i in range(1, len(gradients))]
    return [np.load(file) for file in files], load_file(folder / "grads.safetensors")


def relative(ours, theirs, floor=0.0):
    ours, theirs = np.asarray(ours, np.float64), np.asarray(theirs, np.float64)
    assert ours.shape == theirs.shape
    return np.linalg.norm(ours - theirs) / max(np.linalg.norm(theirs), floor, 1e-30)


def golden_options(entry):
    made = entry["constructor"]
    if entry["class"] == "MedNeXt":
        expansion = made["exp_r"] if isinstance(made["exp_r"], list) else [made["exp_r"]]
        return {"architecture": "mednext", "in_channels": made["in_channels"], "out_channels": made["n_classes"],
                "filters": [made["n_channels"]], "mednext_expansion": expansion, "mednext_kernel": made["kernel_size"],
                "convs_per_stage": made["block_counts"], "mednext_grn": made["grn"],
                "deep_supervision": made["deep_supervision"]}
    if entry["class"] == "RSUNet":
        return {"architecture": "rsunet", "in_channels": made["in_channels"], "out_channels": made["out_channels"],
                "filters": made["width"], "strides": [[1, 1, 1]] + made["down_factors"], "norm": made["norm"],
                "activation": made["activation"], "depth_2d": made["depth_2d"],
                "deep_supervision": made["deep_supervision"]}
    return {"architecture": "cascade_unet", "in_channels": made["in_ch"], "out_channels": made["out_ch"],
            "filters": made["list_ch_A"][1:] + made["list_ch_B"][1:]}


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_outputs_and_gradients_are_met(voxloom, shared, tmp_path, name):
    folder = shared / "data" / "golden_nets"
    if not folder.is_dir():
        pytest.skip("the golden networks are not here")
    entry = next(e for e in json.loads((folder / "manifest.json").read_text())["configurations"] if e["name"] == name)
    stored = load_file(folder / f"{name}.safetensors")
    outputs = [stored.pop(output) for output in GOLDEN[name]]
    expected = {key[5:]: stored.pop(key) for key in list(stored) if key.startswith("grad.")}
    image = wave(entry["input_shape"], np.sin, 0.1, (0.37, 0.21, 0.13))
    gradients = [wave(output.shape, np.cos, 0.3, (0.17, 0.29, 0.23)) for output in outputs]
    ours, grads = run(voxloom, tmp_path, stored, golden_options(entry), image, gradients)
    for mine, golden in zip(ours, outputs):
        assert relative(mine, golden) < 1e-5
    for key, golden in expected.items():
        assert relative(grads[key], golden) < 1e-4, key
    # Without a stored gradient are those that a norm cancels, and MedNeXt's parameter that nothing reads.
    trained = {key for key in stored if not key.endswith(("running_mean", "running_var", "num_batches_tracked", ".up.weight"))}
    cancelled = entry.get("gradients", {}).get("not_stored_zero_in_theory", {}).get("count", 0)
    if expected:
        assert set(grads) == set(expected) and len(trained - set(grads)) == cancelled + (entry["class"] == "MedNeXt")


def refill(network, generator):
    """Every number drawn afresh, at sizes that keep the signal's."""
    for name, values in list(network.named_parameters()) + list(network.named_buffers()):
        if name.endswith(("num_batches_tracked", ".up.weight", "dummy_tensor")):
            continue
        noise = torch.randn(values.shape, generator=generator)
        with torch.no_grad():
            if values.ndim == 5 and "grn" not in name:
                values.copy_(noise / values[0].numel() ** 0.5)
            elif name.endswith("running_var"):
                values.copy_(0.5 + noise.abs())
            elif name.endswith("weight") and values.ndim == 1 and values.numel() > 1:
                values.copy_(1 + 0.2 * noise)
            else:
                values.copy_(0.2 * noise)


def peer_run(network, image, gradients):
    network.zero_grad()
    outputs = network(image)
    sum((out * g).sum() for out, g in zip(outputs, gradients)).backward()
    return outputs, {name: p.grad.numpy().copy() for name, p in network.named_parameters() if p.grad is not None}


def sensitivity(network, image, gradients, grads, generator, draws):
    """How far each gradient moves with an image, and gradients of the outputs, that move by a little more than float32
    rounds. Where a norm sees few voxels, or the last bias a sum that cancels, two correct programs differ by as much."""
    moves = dict.fromkeys(grads, 0.0)
    for _ in range(draws):
        moved = [values + 2e-6 * torch.randn(values.shape, generator=generator) for values in (image, *gradients)]
        for name, gradient in peer_run(network, moved[0], moved[1:])[1].items():
            moves[name] = max(moves[name], relative(gradient, grads[name]))
    return moves


def draw_mednext(draw):
    kernel, width, grn, deep = draw.choice([3, 5, 7]), draw.choice([1, 2, 3]), draw.random() < 0.5, draw.random() < 0.5
    expansion, blocks = [draw.choice([2, 3]) for _ in range(9)], [draw.choice([1, 1, 2]) for _ in range(9)]
    channels, classes = draw.choice([1, 2]), draw.choice([1, 3])
    options = {"architecture": "mednext", "in_channels": channels, "out_channels": classes, "filters": [width],
               "mednext_kernel": kernel, "mednext_expansion": expansion, "convs_per_stage": blocks, "mednext_grn": grn,
               "deep_supervision": deep}
    size = draw.choice([(32, 32, 48), (48, 32, 32), (32, 48, 32)])
    return peers.MedNeXt(channels, classes, width, kernel, expansion, blocks, grn, deep), options, size


def draw_rsunet(draw):
    depth = draw.choice([2, 3])
    widths = [draw.choice([3, 4, 5]) + level for level in range(depth + 1)]
    factors = [[draw.choice([1, 2]), *[draw.choice([2, 2, 3])] * 2] for _ in range(depth)]
    style = {"norm": draw.choice(["batch", "group", "instance", "none"]), "groups": draw.choice([2, 4]),
             "activation": draw.choice(["elu", "leaky_relu", "prelu", "silu"])}
    flat, deep, channels, classes = draw.choice([0, 1, 2]), draw.random() < 0.5, draw.choice([1, 3]), draw.choice([1, 2])
    options = {"architecture": "rsunet", "in_channels": channels, "out_channels": classes, "filters": widths,
               "strides": [[1, 1, 1]] + factors, "norm": style["norm"], "norm_groups": style["groups"],
               "activation": style["activation"], "depth_2d": flat, "deep_supervision": deep}
    size = [int(np.prod([f[axis] for f in factors])) * draw.choice([2, 3]) for axis in range(3)]
    return peers.RSUNet(channels, classes, widths, factors, style, flat, deep), options, size


def draw_cascade(draw):
    widths = [[draw.choice([2, 3, 4]) for _ in range(5)] for _ in range(2)]
    channels, classes = draw.choice([1, 3]), draw.choice([1, 2])
    activation = draw.choice(["elu", "silu"])  # the original's ReLU is in the golden file
    options = {"architecture": "cascade_unet", "in_channels": channels, "out_channels": classes,
               "filters": widths[0] + widths[1], "activation": activation}
    size = draw.choice([(32, 32, 48), (48, 32, 32)])
    return peers.Cascade(channels, classes, *widths, activation), options, size


def draw_openkbp(draw):
    channels, classes, width = draw.choice([1, 3]), draw.choice([1, 2]), draw.choice([1, 2, 3])
    options = {"architecture": "openkbp_unet", "in_channels": channels, "out_channels": classes, "filters": [width],
               "dropout": 0}
    return peers.OpenKbp(channels, classes, width), options, draw.choice([(64, 64, 128), (64, 128, 64)])


@pytest.mark.parametrize("drawn", [draw_mednext, draw_rsunet, draw_cascade, draw_openkbp])
def test_any_shape_computes_what_plain_pytorch_computes(voxloom, draw, tmp_path, drawn):
    torch.set_num_threads(1)  # small networks: threads would only wait for each other
    generator = torch.Generator().manual_seed(draw.randrange(2**62))
    turns = drawn in (draw_rsunet, draw_openkbp)
    for _ in range(20):
        network, options, size = drawn(draw)
        refill(network.train(), generator)
        weights = {name: value.clone() for name, value in network.state_dict().items()}
        if drawn is draw_openkbp:  # Keras does not count batches
            weights = {name: value for name, value in weights.items() if not name.endswith("num_batches_tracked")}
        image = torch.randn(1, options["in_channels"], *size, generator=generator)
        with torch.no_grad():
            shapes = [output.shape for output in network(image)]
        gradients = [torch.randn(shape, generator=generator) for shape in shapes]
        outputs, expected = peer_run(network, image, gradients)
        largest = max(np.linalg.norm(g) for g in expected.values())
        counted = [name for name in expected if np.linalg.norm(expected[name]) > 1e-4 * largest]
        # Where it is a bound, the largest of four was once too small.
        moves = sensitivity(network, image, gradients, expected, generator, draws=4 if turns else 16)
        if counted and max(moves[name] for name in counted) < 0.01:  # else a dose that is 0 everywhere, or too rough
            break
    flags = ["--training"] + draw.choice([[], ["--channels-last"]])
    ours, grads = run(voxloom, tmp_path, weights, options, image.numpy(), [g.numpy() for g in gradients], *flags)
    for mine, theirs in zip(ours, outputs):
        assert relative(mine, theirs.detach().numpy()) < 2e-5  # both round
    assert set(counted) <= set(grads)  # the others are cancelled by a norm, zero but for rounding
    # Rounding alone turns some of a million ReLUs or maxima, and sums of random signs feel each one: there only the size
    # of the largest gradient is a measure, and the golden files, far from any turn, are the proof.
    for name, gradient in grads.items():
        error = relative(gradient.numpy(), expected[name], largest if turns else 1e-4 * largest)
        assert error < (0.01 if turns else max(1e-4, moves[name])), name
