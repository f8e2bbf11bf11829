"""Networks recognised by names and shapes, computing what the originals compute; Keras's files; UpKern."""
import io
import json
import zipfile

import numpy as np
import peer_networks as peers
import pytest
import torch
from safetensors.torch import load_file
from weight_files import assert_computes, forward, refusal, show, wrapped


def random_monai(draw):
    nets = pytest.importorskip("monai.networks.nets")
    torch.manual_seed(draw.randrange(2**31))
    channels, classes = draw.choice([1, 2]), draw.choice([1, 3])
    widths = [draw.choice([4, 6, 8]) * 2**i for i in range(3)]
    choices = {
        "monai_unet": lambda: nets.UNet(3, channels, classes, widths, (2, 2), kernel_size=draw.choice([3, 5]),
                                        num_res_units=draw.choice([0, 1, 2]), norm=draw.choice(["BATCH", "INSTANCE"])),
        "monai_basic_unet3d": lambda: nets.BasicUNet(
            3, channels, classes, [4 * draw.randrange(1, 4) for _ in range(6)],
            upsample=draw.choice(["deconv", "nontrainable", "pixelshuffle"])),
        "dynunet": lambda: nets.DynUNet(
            3, channels, classes, [[3, 3, 3], [draw.choice([1, 3]), 3, 3], [3, 3, 3]], [1, [draw.choice([1, 2]), 2, 2], 2],
            [[2, 2, 2], [2, 2, 2]], filters=widths, res_block=draw.random() < 0.5, trans_bias=draw.random() < 0.5,
            deep_supervision=draw.random() < 0.5, deep_supr_num=1),
    }
    name = draw.choice(list(choices))
    network = choices[name]()
    if name == "dynunet":  # its kernels upwards are the strides
        strides = network.strides[1:]
        network = nets.DynUNet(3, channels, classes, network.kernel_size, network.strides, strides, filters=widths,
                               res_block=network.conv_block.__name__ == "UnetResBlock", trans_bias=network.trans_bias,
                               deep_supervision=network.deep_supervision, deep_supr_num=1)
    for buffer_name, buffer in network.named_buffers():
        if buffer_name.endswith("running_mean"):
            buffer.normal_()
        elif buffer_name.endswith("running_var"):
            buffer.uniform_(0.5, 2)
    return name, channels, network.eval()


@pytest.mark.parametrize("round_", range(4))
def test_monai_networks_are_recognised_and_go_back_unchanged(voxloom, draw, tmp_path, round_):
    name, channels, network = random_monai(draw)
    torch.save(wrapped(draw, network.state_dict()), tmp_path / "w.pt")
    said = voxloom("weights", "import", tmp_path / "w.pt", "--output", tmp_path / "ours.safetensors").stdout
    assert f"recognised as {name}" in said
    parameters = sum(p.numel() for p in network.parameters())
    assert f"{parameters} parameters" in said
    assert_computes(voxloom, tmp_path, tmp_path / "ours.safetensors", network, torch.randn(1, channels, 16, 32, 16))
    voxloom("weights", "export", tmp_path / "ours.safetensors", "--output", tmp_path / "back.pt")
    state = torch.load(tmp_path / "back.pt", weights_only=True)
    assert {k: v.dtype for k, v in state.items()} == {k: v.dtype for k, v in network.state_dict().items()}
    network.load_state_dict(state, strict=True)
    for key, tensor in network.state_dict().items():
        assert torch.equal(state[key], tensor), key


@pytest.mark.parametrize("norm", [("group", {"num_groups": 2}), ("instance", {"affine": True})])
def test_norms_that_look_alike_are_asked_for(voxloom, draw, tmp_path, norm):
    nets = pytest.importorskip("monai.networks.nets")
    torch.manual_seed(draw.randrange(2**31))
    network = nets.UNet(3, 1, 2, [4, 8, 16], (2, 2), num_res_units=draw.choice([1, 2]), norm=norm).eval()
    torch.save(network.state_dict(), tmp_path / "w.pt")
    said = refusal(voxloom, tmp_path / "w.pt", "import")
    assert "affine instance norms" in said and "norm=group norm_groups=N" in said
    if norm[0] == "group":
        assert_computes(voxloom, tmp_path, tmp_path / "w.pt", network, torch.randn(1, 1, 16, 16, 16),
                        draw.choice(["norm=group", "model.norm=group"]), "norm_groups=2")


@pytest.mark.parametrize("norm", ["batch", "group", "instance", "none"])
def test_norms_of_an_rsunet_are_asked_for_where_the_weights_do_not_tell(voxloom, draw, tmp_path, norm):
    torch.manual_seed(draw.randrange(2**31))
    groups = draw.choice([2, 4])
    network = peers.RSUNet(1, 2, [8, 12], [[1, 2, 2]], {"norm": norm, "groups": groups, "activation": "prelu"}, 0,
                           False).eval()
    torch.save(network.state_dict(), tmp_path / "w.pt")
    told = {"batch": [], "group": [f"norm_groups={groups}"]}.get(norm, [f"norm={norm}"])
    if told:
        said = refusal(voxloom, tmp_path / "w.pt", "import")
        assert ("norm_groups=N" if norm == "group" else "norm=instance") in said
    assert_computes(voxloom, tmp_path, tmp_path / "w.pt", network, torch.randn(1, 1, 4, 8, 8), *told)


GOLDEN = {"mednext_k3": "mednext", "mednext_k3_grn": "mednext", "mednext_k5_ds": "mednext", "resenc_plain": "resenc_unet",
          "resenc_se_ds": "resenc_unet", "rsunet_122": "rsunet", "rsunet_222_ds": "rsunet", "c3d_cascade": "cascade_unet"}
NOT_IN_THE_WEIGHTS = {"rsunet_222_ds": ["activation=elu"]}


@pytest.mark.parametrize("file", GOLDEN)
def test_networks_of_other_packages_are_recognised(voxloom, draw, shared, tmp_path, file):
    golden = load_file(shared / "data" / "golden_nets" / f"{file}.safetensors")
    manifest = json.loads((shared / "data" / "golden_nets" / "manifest.json").read_text())
    facts = next(c for c in manifest["configurations"] if c["name"] == file)
    outputs = set(facts["outputs"])
    weights = {k: v for k, v in golden.items() if not k.startswith("grad.") and k not in outputs}
    torch.save({"state_dict": {f"model.{k}": v for k, v in weights.items()}}, tmp_path / "w.ckpt")
    out = tmp_path / "ours.safetensors"
    said = voxloom("weights", "import", tmp_path / "w.ckpt", "--output", out, *NOT_IN_THE_WEIGHTS.get(file, [])).stdout
    assert f"recognised as {GOLDEN[file]}" in said
    n, c, z, y, x = np.meshgrid(*[np.arange(s) for s in facts["input_shape"]], indexing="ij")
    image = torch.from_numpy(np.sin(0.1 * (n + 1) * (c + 1) + 0.37 * z + 0.21 * y + 0.13 * x).astype(np.float32))
    expected = golden["output"].numpy()
    ours = forward(voxloom, tmp_path, out, image)
    assert np.linalg.norm(ours - expected) < 1e-5 * np.linalg.norm(expected)
    voxloom("weights", "export", out, "--output", tmp_path / "back.pt")
    back = torch.load(tmp_path / "back.pt", weights_only=True)
    assert all(torch.equal(back[name], tensor) for name, tensor in weights.items())


def test_upkern_interpolates_kernels_as_the_original(voxloom, shared, tmp_path):
    golden = load_file(shared / "data" / "golden_nets" / "mednext_k3.safetensors")
    weights = {k: v for k, v in golden.items() if not k.startswith("grad.") and k != "output"}
    torch.save(weights, tmp_path / "w.pt")
    said = voxloom("weights", "import", tmp_path / "w.pt", "--output", tmp_path / "k5.safetensors", "mednext_kernel=5")
    assert "UpKern" in said.stdout
    resized = load_file(tmp_path / "k5.safetensors")
    assert resized.keys() == weights.keys()
    for name, tensor in weights.items():
        if tensor.ndim == 5 and tensor.shape[2] == 3:
            tensor = torch.nn.functional.interpolate(tensor, size=(5, 5, 5), mode="trilinear")
        assert torch.allclose(resized[name], tensor, atol=1e-6), name


def openkbp_weights(draw, filters):
    """Under our names and in torch's layout."""
    torch.manual_seed(draw.randrange(2**31))
    width = [filters * m for m in (1, 2, 4, 8, 8, 8)]
    ins = [11, *width[:-1]]
    state = {f"e.{i}.weight": torch.randn(width[i], ins[i], 4, 4, 4) * 0.1 for i in range(6)}
    ups = [(width[5], width[4]), *[(2 * width[4 - i], width[3 - i]) for i in range(4)]]
    state |= {f"d.{i}.weight": torch.randn(a, b, 4, 4, 4) * 0.1 for i, (a, b) in enumerate(ups)}
    state |= {"o.weight": torch.randn(2 * width[0], 1, 4, 4, 4) * 0.1, "o.bias": torch.randn(1)}
    for part, channels in [("eb", width[:5]), ("db", [b for _, b in ups])]:
        for i, c in enumerate(channels):
            state |= {f"{part}.{i}.weight": torch.rand(c) + 0.5, f"{part}.{i}.bias": torch.randn(c),
                      f"{part}.{i}.running_mean": torch.randn(c), f"{part}.{i}.running_var": torch.rand(c) + 0.5}
    return state


def keras_layers(state, first):
    """[(layer, {variable: array})] in the order in which Keras makes them; `first` numbers the first of each kind."""
    named = lambda kind, i: kind if first + i == 0 else f"{kind}_{first + i}"
    kernel = lambda t: t.permute(2, 3, 4, 1, 0).numpy()  # undone by transpose(4, 3, 0, 1, 2)
    layers, norms = [], 0
    norm = lambda p: {"gamma": state[f"{p}.weight"], "beta": state[f"{p}.bias"], "moving_mean": state[f"{p}.running_mean"],
                      "moving_variance": state[f"{p}.running_var"]}
    for part, count, kind in [("e", 6, "conv3d"), ("d", 5, "conv3d_transpose")]:
        for i in range(count):
            layers.append((named(kind, i), {"kernel": kernel(state[f"{part}.{i}.weight"])}))
            if f"{part}b.{i}.weight" in state:
                layers.append((named("batch_normalization", norms), norm(f"{part}b.{i}")))
                norms += 1
    layers.append((named("conv3d_transpose", 5), {"kernel": kernel(state["o.weight"]), "bias": state["o.bias"]}))
    return layers


@pytest.mark.parametrize("form", ["h5", "weights.h5", "keras"])
def test_keras_files_of_the_dose_network_are_read(voxloom, draw, tmp_path, form):
    import h5py
    state = openkbp_weights(draw, draw.choice([1, 2]))
    layers = keras_layers(state, draw.choice([0, 0, 9]) if form == "h5" else 0)
    memory = io.BytesIO()
    with h5py.File(memory, "w") as file:
        for layer, variables in layers:
            for number, (variable, values) in enumerate(variables.items()):
                if form == "h5":
                    file[f"model_weights/{layer}/{layer}/{variable}:0"] = np.asarray(values)
                    file[f"optimizer_weights/Adam/m/{layer}/{variable}:0"] = np.asarray(values) * 0
                else:
                    file[f"layers/{layer}/vars/{number}"] = np.asarray(values)
    path = tmp_path / f"model.{form}"
    if form == "keras":
        with zipfile.ZipFile(path, "w") as file:
            file.writestr("metadata.json", "{}")
            file.writestr("model.weights.h5", memory.getvalue())
    else:
        path.write_bytes(memory.getvalue())
    assert len(show(voxloom, path)) == len(state)
    said = voxloom("weights", "import", path, "--output", tmp_path / "ours.safetensors").stdout
    assert "recognised as openkbp_unet" in said
    ours = load_file(tmp_path / "ours.safetensors")
    for name, tensor in state.items():
        assert torch.equal(ours[name], tensor), name


def test_the_dose_network_from_its_file_computes_the_recorded_output(voxloom, shared, tmp_path):
    folder = shared / "data" / "openkbp" / "golden_unet"
    manifest = json.loads((folder / "manifest.json").read_text())
    numbers = np.fromfile(folder / "weights_before.bin", np.float32)
    state = {t["name"]: torch.from_numpy(numbers[t["offset_floats"]:][:int(np.prod(t["shape"]))].reshape(t["shape"]))
             for t in manifest["tensors"]}
    torch.save(state, tmp_path / "w.pt")
    voxloom("weights", "import", tmp_path / "w.pt", "--output", tmp_path / "ours.safetensors")
    flat = np.arange(64**3, dtype=np.int64).reshape(64, 64, 64)
    image = np.stack([np.stack([(flat * 7919 + b * 104729) % 4096,
                                *[((flat // (3 + r) + b) % (11 + r)) == 0 for r in range(10)]]) for b in range(2)])
    expected = np.fromfile(folder / "eval_output_before.bin", np.float32).reshape(2, 1, 64, 64, 64)
    ours = forward(voxloom, tmp_path, tmp_path / "ours.safetensors", torch.from_numpy(image.astype(np.float32)))
    assert np.linalg.norm(ours - expected) < 1e-5 * np.linalg.norm(expected)


# ---- what weights do not tell ----

def nnunet(draw, residual, **more):
    unet = pytest.importorskip("dynamic_network_architectures.architectures.unet")
    torch.manual_seed(draw.randrange(2**31))
    common = dict(input_channels=1, n_stages=2, features_per_stage=[4, 8], conv_op=torch.nn.Conv3d, kernel_sizes=3,
                  strides=[1, 2], num_classes=2, n_conv_per_stage_decoder=[1], conv_bias=True,
                  norm_op=torch.nn.InstanceNorm3d, norm_op_kwargs={"eps": 1e-5, "affine": True},
                  nonlin=torch.nn.LeakyReLU, nonlin_kwargs={}) | more
    if residual:
        return unet.ResidualEncoderUNet(n_blocks_per_stage=[1, 2], **common).eval()
    return unet.PlainConvUNet(n_conv_per_stage=[1, 2], **common).eval()


@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("dropout", [False, True])
@pytest.mark.parametrize("activation", [torch.nn.LeakyReLU, torch.nn.PReLU])
def test_layers_that_nnunet_holds_twice_are_exported_twice(voxloom, draw, tmp_path, residual, dropout, activation):
    more = {"dropout_op": torch.nn.Dropout3d, "dropout_op_kwargs": {"p": 0.1}} if dropout else {}
    network = nnunet(draw, residual, nonlin=activation, **more)
    torch.save(network.state_dict(), tmp_path / "w.pt")
    voxloom("weights", "import", tmp_path / "w.pt", "--output", tmp_path / "ours.safetensors",
            *(["dropout=0.1"] if dropout else []))
    assert_computes(voxloom, tmp_path, tmp_path / "ours.safetensors", network, torch.randn(1, 1, 8, 8, 8))
    voxloom("weights", "export", tmp_path / "ours.safetensors", "--output", tmp_path / "back.pt")
    state = torch.load(tmp_path / "back.pt", weights_only=True)
    network.load_state_dict(state, strict=True)
    assert all(torch.equal(state[name], tensor) for name, tensor in network.state_dict().items())


ASSUMED = "the weights do not tell, so it is assumed: "


@pytest.mark.parametrize("strides, seen", [(((1, 2, 2), (2, 2, 2)), False), (((1, 1, 1), (2, 2, 2)), True),
                                           (((2, 2, 2), (1, 1, 1)), True)])
def test_strides_of_monais_unet_are_seen_or_said_to_be_assumed(voxloom, draw, tmp_path, strides, seen):
    nets = pytest.importorskip("monai.networks.nets")
    torch.manual_seed(draw.randrange(2**31))
    widths = draw.choice([(8, 16, 32), (8, 8, 8)])
    network = nets.UNet(3, 1, 2, widths, strides, num_res_units=draw.choice([1, 2])).eval()
    torch.save(network.state_dict(), tmp_path / "w.pt")
    given = [] if seen else [f"strides={json.dumps(strides)}"]
    import_it = ["weights", "import", tmp_path / "w.pt", "--output", tmp_path / "ours.safetensors"]
    said = voxloom(*import_it).stdout
    assert ASSUMED + "strides of 2 " in said and "add strides=..." in said
    assert ASSUMED not in voxloom(*import_it, f"strides={json.dumps(strides)}").stdout
    assert_computes(voxloom, tmp_path, tmp_path / "w.pt", network, torch.randn(1, 1, 8, 16, 8), *given)


def test_activations_and_norms_that_left_no_trace_are_said_to_be_assumed(voxloom, draw, tmp_path):
    nets = pytest.importorskip("monai.networks.nets")
    torch.manual_seed(draw.randrange(2**31))
    group = ("group", {"num_groups": 2})
    kernels, ups = [[3, 3, 3]] * 3, [[2, 2, 2]] * 2
    cases = [(nets.BasicUNet(3, 1, 2, [4] * 6, act="relu", norm=group), "leaky_relu with slope 0.1", 16),
             (nets.DynUNet(3, 1, 2, kernels, [1, 2, 2], ups, filters=[4, 4, 8], act_name="relu", norm_name=group),
              "leaky_relu with slope 0.01", 8)]
    for network, activation, side in cases:
        torch.save(network.eval().state_dict(), tmp_path / "w.pt")
        told = ["activation=relu", "norm=group", "norm_groups=2"]
        import_it = ["weights", "import", tmp_path / "w.pt", "--output", tmp_path / "ours.safetensors"]
        said = voxloom(*import_it).stdout
        assert f"{ASSUMED}activation {activation} (for another add activation=...); norm instance" in said
        assert "norm=group norm_groups=N" in said
        assert ASSUMED not in voxloom(*import_it, *told).stdout
        assert_computes(voxloom, tmp_path, tmp_path / "ours.safetensors", network, torch.randn(1, 1, side, side, side))


def test_activations_are_asked_for_where_the_default_would_be_a_guess(voxloom, draw, tmp_path):
    nets = pytest.importorskip("monai.networks.nets")
    torch.manual_seed(draw.randrange(2**31))
    network = nets.UNet(3, 1, 2, (4, 8), (2,), act="relu", num_res_units=1).eval()
    torch.save(network.state_dict(), tmp_path / "w.pt")
    assert "add activation=relu" in refusal(voxloom, tmp_path / "w.pt", "import")
    assert_computes(voxloom, tmp_path, tmp_path / "w.pt", network, torch.randn(1, 1, 8, 8, 8), "activation=relu")
    rsunet = peers.RSUNet(1, 2, [8, 12], [[1, 2, 2]], {"norm": "group", "groups": 4, "activation": "elu"}).eval()
    torch.save(rsunet.state_dict(), tmp_path / "w.pt")
    for given in [[], ["norm_groups=4"]]:
        result = voxloom("weights", "import", tmp_path / "w.pt", *given, check=False)
        assert result.returncode == 1 and "norm_groups=N" in result.stderr and "activation=elu" in result.stderr
    assert_computes(voxloom, tmp_path, tmp_path / "w.pt", rsunet, torch.randn(1, 1, 4, 8, 8), "norm_groups=4",
                    "activation=elu")


def test_an_export_says_what_it_cannot_carry(voxloom, draw, tmp_path):
    torch.save(nnunet(draw, False).state_dict(), tmp_path / "w.pt")
    ours = tmp_path / "ours.safetensors"
    voxloom("weights", "import", tmp_path / "w.pt", "--output", ours, "output_scale=70", "added_channel=0")
    said = voxloom("weights", "export", ours, "--output", tmp_path / "back.pt").stdout
    assert "multiply the original's outputs by 70" in said and "add channel 0 of the image" in said
    voxloom("weights", "import", tmp_path / "w.pt", "--output", ours)
    assert "state dict" not in voxloom("weights", "export", ours, "--output", tmp_path / "back.pt").stdout
