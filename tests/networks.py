"""Compares a network of the program with its original: the same weights must give the same outputs and gradients."""
import copy
import json

import numpy as np
import torch
from safetensors.torch import load_file, save_file

FORWARD, BACKWARD = 1e-5, 1e-4  # relative L2 error of float32; the originals run in float64


def shake(network, draw):
    """Draws every number afresh: biases and norms are zero and one else, and would hide a mistake."""
    torch.manual_seed(draw.randrange(2**31))
    for module in network.modules():
        for name, values in [*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)]:
            with torch.no_grad():
                if name == "num_batches_tracked":
                    values.fill_(7)
                elif name == "running_var":
                    values.uniform_(0.5, 2)
                elif isinstance(module, torch.nn.PReLU):
                    values.uniform_(0.1, 0.4)
                elif values.ndim == 1 and name == "weight":
                    values.uniform_(0.5, 1.5)
                elif values.ndim == 1:
                    values.normal_(0, 0.3)
                else:
                    fan_in = values[:, 0].numel() if isinstance(module, torch.nn.ConvTranspose3d) else values[0].numel()
                    values.normal_(0, (2 / fan_in) ** 0.5)
    return network


def relative(ours, expected):
    return np.linalg.norm(ours - expected) / max(np.linalg.norm(expected), 1e-30)


def run_ours(voxloom, folder, image, output_gradients, *flags):
    """Outputs (finest first) and gradients by name, of the weights and options in w.safetensors."""
    np.save(folder / "in.npy", image)
    names = []
    for i, gradient in enumerate(output_gradients):
        names.append(folder / f"gradient{i}.npy")
        np.save(names[-1], gradient)
    voxloom("weights", "forward", folder / "w.safetensors", folder / "in.npy", folder / "out.npy", *flags,
            "--all-heads", "--output-gradients", ",".join(map(str, names)), "--gradients", folder / "g.safetensors")
    outputs = [np.load(folder / ("out.npy" if i == 0 else f"out.{i}.npy")) for i in range(len(names))]
    return outputs, {name: values.numpy() for name, values in load_file(folder / "g.safetensors").items()}


def assert_gradients_agree(ours, exact, rounded):
    """Each with that of the original, in float64 or, where rounding decides which voxel is the largest or on which side
    of a kink a value lies, in float32."""
    for name, values in exact.items():
        weight = name.removesuffix("bias") + "weight"
        if weight in exact and weight != name and np.linalg.norm(values) < 1e-9 * np.linalg.norm(exact[weight]):
            # A norm cancels this bias: what float32 leaves of its gradient is noise.
            assert np.linalg.norm(ours.get(name, np.zeros(1))) < 1e-3 * np.linalg.norm(exact[weight]), name
        else:
            error = min(relative(ours[name], values), relative(ours[name], rounded[name]))
            assert error < BACKWARD, (name, error, np.linalg.norm(values))


def run_original(network, heads, image, output_gradients=None):
    """Outputs, their gradients (drawn here if not given), and those of the parameters by name."""
    network.zero_grad()
    outputs = heads(network, image)
    gradients = output_gradients or [torch.randn_like(output).float() for output in outputs]
    sum((output * gradient).sum() for output, gradient in zip(outputs, gradients)).backward()
    return ([output.detach().numpy() for output in outputs], gradients,
            {name: p.grad.numpy() for name, p in network.named_parameters() if p.grad is not None})


def assert_computes_the_same(voxloom, draw, folder, network, options, patch, samples=1, training=False, heads=None):
    """`heads` gives the list of outputs, finest first, where it is not what the network returns."""
    shake(network, draw).train(training)
    heads = heads or (lambda net, x: [net(x)])
    metadata = {key: value if isinstance(value, str) else json.dumps(value) for key, value in options.items()}
    save_file({name: tensor.clone() for name, tensor in network.state_dict().items()}, folder / "w.safetensors", metadata)
    exact = copy.deepcopy(network).double()
    channels_last = draw.choice([False, True])
    flags = ["--training"] * training + ["--channels-last"] * channels_last
    layout = torch.channels_last_3d if channels_last else torch.contiguous_format
    network.to(memory_format=layout)
    print(options, patch, flags)
    attempts = 6
    for attempt in range(attempts):
        image = torch.randn(samples, options["in_channels"], *patch)
        outputs, gradients, expected = run_original(exact, heads, image.double())
        rounded_outputs, _, rounded = run_original(network, heads, image.to(memory_format=layout), gradients)
        ours, our_gradients = run_ours(voxloom, folder, image.numpy(), [g.numpy() for g in gradients], *flags)
        for mine, output, noisy in zip(ours, outputs, rounded_outputs):
            assert mine.shape == output.shape
            # Norms over values that hardly differ make rounding large, in the original too, and torch's for
            # channels-last are the rougher ones.
            allowed = max(FORWARD, 4 * relative(noisy, output))
            assert relative(mine, output) < allowed, (relative(mine, output), allowed)
        try:
            return assert_gradients_agree(our_gradients, expected, rounded)
        except AssertionError:
            # Rounding may decide otherwise again. A mistake shows with every image.
            if attempt + 1 == attempts:
                raise
