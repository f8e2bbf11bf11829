"""What voxloom profile finds out beside its times: operations, stages of the network, arithmetic, memory, the trace."""
import json
import math

import pytest

from plants import write_cases, write_recipe


def unet_counts(filters, size):
    """Multiply-adds and parameters of nnU-Net's plain U-Net, one channel in and out: layer by layer, by hand."""
    macs = count = 0
    levels = [size // 2**level for level in range(len(filters))]

    def layer(inputs, outputs, kernel, places, extra):
        nonlocal macs, count
        macs += places**3 * inputs * outputs * kernel**3
        count += inputs * outputs * kernel**3 + extra * outputs

    before = 1
    for width, place in zip(filters, levels):
        layer(before, width, 3, place, 3)  # bias, scale, shift
        layer(width, width, 3, place, 3)
        before = width
    for level in range(len(filters) - 2, -1, -1):
        width = filters[level]
        layer(filters[level + 1], width, 2, levels[level + 1], 1)
        layer(2 * width, width, 3, levels[level], 3)
        layer(width, width, 3, levels[level], 3)
        layer(width, 1, 1, levels[level], 1)  # a head at each level, whether it is used or not
        if level > 0:
            macs -= levels[level] ** 3 * width
    return macs, count


def test_operations_stages_arithmetic_and_memory(voxloom, draw, tmp_path):
    write_cases(tmp_path, draw, 3, (32, 36, 40))
    filters = [draw.randrange(2, 7) for _ in range(draw.randrange(2, 4))]
    recipe = write_recipe(tmp_path, model={"filters": filters, "out_channels": 1},
                          training={"optimizer": "adam"}, augmentation={"noise": {"enabled": True, "prob": 1.0}})
    said = voxloom("profile", recipe, "--steps", 6, "--json", "--device", "cpu", "--trace", tmp_path)
    assert not said.stderr, "the profiler itself keeps quiet"
    result = json.loads(said.stdout)

    operations = result["slowest_operations"]
    assert len(operations) == 15
    assert any("convolution" in operation["name"] for operation in operations)
    times = [operation["ms"] for operation in operations]
    assert times == sorted(times, reverse=True) and min(times) >= 0
    assert sum(times) <= result["traced"]["step_ms"] and result["traced"]["steps"] == 3
    assert all(operation["calls"] > 0 for operation in operations)

    sizes = ["x".join(3 * [str(16 // 2**level)]) for level in range(len(filters))]
    names = [f"encoder {size}" for size in sizes] + [f"decoder {size}" for size in sizes[-2::-1]] + ["other"]
    assert [stage["name"] for stage in result["forward_stages"]] == names
    path = tmp_path / "voxloom.pt.trace.json"  # the name that TensorBoard looks for
    assert result["trace"] == str(path)
    events = json.loads(path.read_text())["traceEvents"]
    forward = sum(event["dur"] for event in events if event["name"] == "forward" and event["cat"] == "voxloom") / 6e3
    assert sum(stage["ms"] for stage in result["forward_stages"]) == pytest.approx(forward)

    macs, parameters = unet_counts(filters, 16)
    achieved = result["achieved"]
    assert achieved["step_flops"] == pytest.approx(3 * 2 * 2 * macs)  # three passes, two operations each, two samples
    assert achieved["flops_per_s"] == pytest.approx(1e3 * achieved["step_flops"] / result["step_ms"])
    assert achieved["ceiling_flops_per_s"] > 0 and achieved["ceiling_bytes_per_s"] > 0
    assert achieved["flops_share"] == pytest.approx(achieved["flops_per_s"] / achieved["ceiling_flops_per_s"])
    kinds = result["memory"]["by_kind_gb"]
    assert kinds["parameters"] * 1e9 == pytest.approx(4 * parameters)
    assert 0 < kinds["gradients"] <= kinds["parameters"] and kinds["optimizer"] > kinds["parameters"]
    assert set(kinds) == {"parameters", "gradients", "optimizer", "activations", "data_cache", "other"}

    threads = result["threads"]
    assert threads["data_working"] + threads["data_blocked"] + threads["data_idle"] == pytest.approx(1)
    assert result["sync_points"] == 0 and result["gpu_stages"] == [] and result["gpu_busy"] is None

    steps = [event for event in events if event["name"] == "step" and event["cat"] == "voxloom_traced"]
    traced = [event for event in events if event.get("cat") == "cpu_op"]
    assert len(steps) == 3 and len(traced) > 100
    tolerance = 2000  # microseconds: two clocks
    first, last = steps[0]["ts"], steps[-1]["ts"] + steps[-1]["dur"]
    assert all(first - tolerance < event["ts"] and event["ts"] + event["dur"] < last + tolerance for event in traced)
    convolutions = [event for event in traced if event["name"] == "aten::convolution"]
    assert len(convolutions) % 3 == 0 and len(convolutions) >= 3 * 2 * len(filters)


def test_only_the_times_of_steps_where_time_is_short(voxloom, draw, tmp_path):
    write_cases(tmp_path, draw, 2, (24, 24, 24))
    text = voxloom("profile", write_recipe(tmp_path), "--steps", 3, "--seconds", 5, "--json").stdout
    result = json.loads(text)
    assert result["slowest_operations"] == [] and math.isfinite(result["step_ms"])
