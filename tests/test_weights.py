"""Weights of other programs: files of the real torch.save, in any wrapping, in and out again."""
import collections
import zipfile

import pytest
import tifffile
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from training import write_training
from weight_files import DTYPES, assert_computes, expected_of, forward, refusal, show, unet_weights, wrapped


def random_tensor(draw, dtype):
    shape = [draw.randrange(0, 5) for _ in range(draw.randrange(0, 5))]
    return (torch.randn(shape) * 10).to(dtype)


@pytest.mark.parametrize("zipped", [True, False])
def test_tensors_of_every_type_are_listed_as_torch_has_them(voxloom, draw, tmp_path, zipped):
    kinds = list(DTYPES) if zipped else [t for t in DTYPES if t not in (torch.uint16, torch.float8_e4m3fn)]
    tensors = {f"layer.{i}": random_tensor(draw, dtype) for i, dtype in enumerate(kinds)}
    torch.save(tensors, tmp_path / "w.pt", _use_new_zipfile_serialization=zipped)
    assert show(voxloom, tmp_path / "w.pt") == expected_of(tensors)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_every_pickle_protocol_is_read(voxloom, tmp_path, protocol):
    tensors = collections.OrderedDict(a=torch.ones(2, 3), b=torch.zeros(4, dtype=torch.int64))
    torch.save({"state_dict": tensors, "epoch": 3, "more": {1, 2}, "text": "x" * 300, "big": 2**70, "neg": -5,
                "half": 0.5, "none": None, "yes": True, "tuple": (1, (2, 3, 4, 5)), "bytes": b"abc"},
               tmp_path / "w.pt", pickle_protocol=protocol)
    assert show(voxloom, tmp_path / "w.pt") == expected_of(tensors)


def scrambled(draw, state):
    """The same values as views: of shared storages, transposed in memory, sliced out of larger ones."""
    result = collections.OrderedDict()
    for name, tensor in state.items():
        how = draw.randrange(4)
        if how == 0 and tensor.ndim >= 2:
            tensor = tensor.transpose(0, 1).contiguous().transpose(0, 1)
        elif how == 1:
            tensor = torch.stack([tensor, -tensor], dim=-1)[..., 0]
        elif how == 2:
            tensor = torch.cat([torch.randn(7), tensor.reshape(-1)])[7:].reshape(tensor.shape)
        elif how == 3 and tensor.ndim == 5:
            tensor = tensor.contiguous(memory_format=torch.channels_last_3d)
        result[name] = torch.nn.Parameter(tensor) if draw.random() < 0.3 else tensor
    return result


@pytest.mark.parametrize("round_", range(3))
def test_a_checkpoint_in_any_wrapping_computes_what_torch_computes(voxloom, draw, tmp_path, round_):
    network = unet_weights(draw)
    file = tmp_path / draw.choice(["w.pt", "checkpoint_final.pth", "last.ckpt"])
    torch.save(wrapped(draw, scrambled(draw, network.state_dict())), file,
               _use_new_zipfile_serialization=draw.random() < 0.8)
    voxloom("weights", "import", file, "--output", tmp_path / "ours.safetensors")
    assert_computes(voxloom, tmp_path, tmp_path / "ours.safetensors", network, torch.randn(1, 1, 8, 8, 8))


def test_shared_storages_and_expanded_views_are_read_as_their_values(voxloom, draw, tmp_path):
    network = unet_weights(draw)
    state = network.state_dict()
    flat = torch.cat([t.reshape(-1) for t in state.values()])
    at = 0
    for name, tensor in list(state.items()):
        state[name] = flat[at:at + tensor.numel()].reshape(tensor.shape)
        at += tensor.numel()
    for name in ["norm.bias", "all_modules.1.bias"]:  # one tensor under two names
        name = f"decoder.stages.0.convs.0.{name}"
        state[name] = torch.tensor([0.25]).expand(state[name].shape)
    torch.save(state, tmp_path / "w.pt")
    network.load_state_dict(state)
    assert_computes(voxloom, tmp_path, tmp_path / "w.pt", network, torch.randn(1, 1, 8, 8, 8))


def test_deflated_archives_and_those_without_checksums_are_read(voxloom, tmp_path):
    tensors = {"a": torch.zeros(100, 100), "b": torch.ones(3)}
    torch.save(tensors, tmp_path / "w.pt")
    with zipfile.ZipFile(tmp_path / "w.pt") as old, \
            zipfile.ZipFile(tmp_path / "packed.pt", "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            new.writestr(name, old.read(name))
    assert show(voxloom, tmp_path / "packed.pt") == expected_of(tensors)
    torch.serialization.set_crc32_options(False)
    try:
        torch.save(tensors, tmp_path / "plain.pt")
    finally:
        torch.serialization.set_crc32_options(True)
    assert show(voxloom, tmp_path / "plain.pt") == expected_of(tensors)


def test_several_dicts_of_tensors_are_told_apart_by_entry(voxloom, tmp_path):
    torch.save({"first": {"a": torch.ones(1)}, "second": {"b": torch.ones(2)}}, tmp_path / "w.pt")
    said = refusal(voxloom, tmp_path / "w.pt")
    assert "--entry" in said and "first" in said and "second" in said
    assert show(voxloom, tmp_path / "w.pt", "--entry", "second") == {"b": ("F32", [2])}


@pytest.mark.parametrize("name", ["state_dict", "model_state_dict", "my_network"])
def test_loose_tensors_beside_the_weights_are_no_weights(voxloom, draw, tmp_path, name):
    state = unet_weights(draw).state_dict()
    torch.save({"epoch": 3, name: state, "loss": torch.tensor(0.3), "step": torch.tensor(7)}, tmp_path / "w.pt")
    assert show(voxloom, tmp_path / "w.pt") == expected_of(state)
    said = voxloom("weights", "import", tmp_path / "w.pt", "--output", tmp_path / "ours.safetensors").stdout
    assert "recognised as unet" in said


def test_of_several_dicts_the_one_with_the_most_tensors_is_taken_but_no_average(voxloom, tmp_path):
    few, many = ({f"{i}": torch.ones(n) for i in range(n)} for n in (2, 5))
    for held in [{"state_dict": few, "model": many}, {"model": many, "ema": many | {"n_averaged": torch.tensor(1)}},
                 {"network": many, "optimizer": {"state": many | few | {"more": torch.ones(1)}}},
                 many | {"state_dict": few}, {"module": few, "net": {"weights": many}}]:
        torch.save(held, tmp_path / "w.pt")
        assert show(voxloom, tmp_path / "w.pt") == expected_of(many)


def test_loose_tensors_are_named_where_no_dict_is_preferred(voxloom, tmp_path):
    pair = {"a": torch.ones(1), "b": torch.ones(2)}
    torch.save({"loss": torch.tensor(0.3), "first": pair, "second": dict(pair)}, tmp_path / "w.pt")
    said = refusal(voxloom, tmp_path / "w.pt")
    assert "--entry" in said and "first (2 tensors)" in said and "second (2 tensors)" in said


def test_torchscript_is_sent_to_its_own_option(voxloom, tmp_path):
    torch.jit.script(torch.nn.Linear(1, 1)).save(tmp_path / "m.pt")
    assert "torchscript" in refusal(voxloom, tmp_path / "m.pt")


@pytest.mark.parametrize("suffix", ["pt", "safetensors"])
def test_exported_weights_load_strictly_into_the_original(voxloom, draw, tmp_path, suffix):
    network = unet_weights(draw)
    torch.save(network.state_dict(), tmp_path / "w.pt")
    voxloom("weights", "import", tmp_path / "w.pt", "--output", tmp_path / "ours.safetensors")
    out = tmp_path / f"back.{suffix}"
    voxloom("weights", "export", tmp_path / "ours.safetensors", "--output", out)
    state = torch.load(out, weights_only=True) if suffix == "pt" else load_file(out)
    assert set(state) == set(network.state_dict())
    for name, tensor in network.state_dict().items():
        assert torch.equal(state[name], tensor), name
    network.load_state_dict(state, strict=True)
    if suffix == "pt":
        assert torch.load(out, weights_only=True, mmap=True).keys() == state.keys()


def test_export_by_format_and_unknown_suffixes(voxloom, draw, tmp_path):
    torch.save(unet_weights(draw).state_dict(), tmp_path / "w.pt")
    voxloom("weights", "export", tmp_path / "w.pt", "--output", tmp_path / "back.bin", "--format", "pt")
    assert torch.load(tmp_path / "back.bin", weights_only=True)
    result = voxloom("weights", "export", tmp_path / "w.pt", "--output", tmp_path / "back.bin2", check=False)
    assert result.returncode == 1 and ".pt" in result.stderr


def test_an_import_never_overwrites_its_source(voxloom, draw, tmp_path):
    save_file({k: v.clone() for k, v in unet_weights(draw).state_dict().items()}, tmp_path / "w.safetensors")
    before = (tmp_path / "w.safetensors").read_bytes()
    assert "overwritten" in refusal(voxloom, tmp_path / "w.safetensors", "import")
    assert (tmp_path / "w.safetensors").read_bytes() == before


# ---- what does not fit ----

def test_a_mismatch_lists_missing_unexpected_and_wrong_shaped(voxloom, draw, tmp_path):
    state = unet_weights(draw).state_dict()
    state["decoder.extra.weight"] = torch.ones(2)
    del state["encoder.stages.1.0.convs.0.norm.weight"]
    state["encoder.stages.1.0.convs.0.norm.bias"] = torch.ones(1)
    torch.save(state, tmp_path / "w.pt")
    said = refusal(voxloom, tmp_path / "w.pt", "import")
    assert "missing encoder.stages.1.0.convs.0.norm.weight" in said
    assert "unexpected decoder.extra.weight" in said
    assert "wrong-shaped encoder.stages.1.0.convs.0.norm.bias [1]" in said
    assert "--partial" in said


def test_partial_takes_a_head_of_another_size_and_says_what_it_skipped(voxloom, draw, tmp_path):
    network = unet_weights(draw, classes=2)
    torch.save(network.state_dict(), tmp_path / "w.pt")
    out = tmp_path / "ours.safetensors"
    command = ["weights", "import", tmp_path / "w.pt", "--output", out, "out_channels=5"]
    result = voxloom(*command, check=False)
    assert result.returncode == 1 and "wrong-shaped decoder.seg_layers" in result.stderr and not out.exists()
    said = voxloom(*command, "--partial").stdout
    assert "decoder.seg_layers.0.weight" in said and "drawn afresh" in said
    ours = load_file(out)
    for name, tensor in network.state_dict().items():
        if name in ours and "seg_layers" not in name:
            assert torch.equal(ours[name], tensor)
    assert forward(voxloom, tmp_path, out, torch.randn(1, 1, 8, 8, 8)).shape == (1, 5, 8, 8, 8)


def test_weights_of_no_known_network_are_named(voxloom, tmp_path):
    torch.save({"fc.weight": torch.ones(2, 2)}, tmp_path / "w.pt")
    said = refusal(voxloom, tmp_path / "w.pt", "import")
    assert "fc.weight" in said and "--architecture" in said and "--entry" in said


def test_imported_weights_predict_with_the_settings_they_were_given(voxloom, draw, tmp_path):
    network = unet_weights(draw)
    torch.save(network.state_dict(), tmp_path / "w.pt")
    image = torch.randint(0, 255, (8, 16, 16), dtype=torch.uint8)
    tifffile.imwrite(tmp_path / "case.tif", image.numpy())
    voxloom("weights", "import", tmp_path / "w.pt", "--output", tmp_path / "ours.safetensors",
            "inference.window=8,16,16", "data.preprocess=[]")
    voxloom("predict", tmp_path / "ours.safetensors", tmp_path / "case.tif", "--output", tmp_path / "out")
    with torch.no_grad():
        logits = network(image[None, None].float())[0]
    margin = (logits[0] - logits[1]).abs().numpy()
    labels = tifffile.imread(tmp_path / "out" / "case.tif")
    decided = margin > 1e-3 * margin.max()
    assert ((labels == logits.argmax(0).numpy()) | ~decided).all()


def test_a_training_says_where_its_network_is_not_the_one_that_the_weights_come_from(voxloom, draw, tmp_path):
    recipe = write_training(tmp_path, draw)
    network = unet_weights(draw, classes=1)
    torch.save(network.state_dict(), tmp_path / "w.pt")
    ours = tmp_path / "ours.safetensors"
    voxloom("weights", "import", tmp_path / "w.pt", "--output", ours, "activation=relu", "output_scale=1")
    with safe_open(ours, "pt") as file:
        shape = [f"model.{key}={file.metadata()[key]}"
                 for key in ("filters", "strides", "kernels", "convs_per_stage", "decoder_convs")]

    def said(run, *more):
        result = voxloom("train", recipe, "--run", tmp_path / run, f"model.weights={ours}", *shape,
                         "training.max_epochs=1", "training.iterations_per_epoch=1", *more)
        return result.stdout + result.stderr

    assert said("first").count("model.activation is relu there and auto here") == 1
    assert "there and" not in said("second", "model.activation=relu")
