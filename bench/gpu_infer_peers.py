"""Sliding windows on a GPU beside MONAI's inferer with torch.compile: plain nnU-Net, window 128, overlap 0.5, gaussian,
bfloat16, volume and result on the GPU, the same weights. First both in float32 on a smaller volume: equal to 1e-4.

The bar: 320^3 in at most 0.5 times the peer's time, 512^3 in at most 0.4. Rounds alternate; a round times each program
several times after a warm-up, and pairs are formed within it. A second row is the whole command from file to file: ours
with the start of the program, the peer's reading, windows and writing in a process that has already imported and
compiled everything. --csv adds the rows to bench/results/gpu_infer.csv.
With --wait it compiles, says so, and begins to measure after a line of input: the GPU may be busy until then.
"""
import argparse
import csv
import datetime
import json
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy as np
import torch
from dynamic_network_architectures.architectures.unet import PlainConvUNet
from monai.inferers import SlidingWindowInferer

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
sys.path.insert(0, str(HERE.parent / "tools"))
import bench_results  # noqa: E402
from pairs import compare, interleave  # noqa: E402

FILTERS = [32, 64, 128, 256, 320, 320]
BARS = {320: 0.5, 512: 0.4}
WINDOW, BATCH = 128, 4


def make_network():
    torch.manual_seed(0)
    return PlainConvUNet(1, len(FILTERS), FILTERS, torch.nn.Conv3d, 3, [1] + [2] * (len(FILTERS) - 1), 2, 2, 2,
                         conv_bias=True, norm_op=torch.nn.InstanceNorm3d,
                         norm_op_kwargs={"eps": 1e-5, "affine": True}, nonlin=torch.nn.LeakyReLU,
                         nonlin_kwargs={"inplace": True}).cuda().eval()


def voxloom(program, folder, side, repeats, *options):
    command = [program, "bench", "infer", folder / "net.safetensors", folder / f"image{side}.npy", "--device", "cuda",
               f"inference.window={WINDOW},{WINDOW},{WINDOW}", f"inference.batch_size={BATCH}", "--repeats",
               str(repeats), "--warm-up", "2", "--json", *options]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"voxloom failed:\n{result.stderr}")
    return json.loads(result.stdout)[0]


def equal_in_float32(network, inferer, program, folder):
    image = torch.randn(1, 1, 192, 160, 160, device="cuda")
    np.save(folder / "image0.npy", image[0, 0].cpu().numpy())
    torch.backends.cudnn.allow_tf32 = False
    with torch.no_grad():
        expected = inferer(image, network)[0].cpu().numpy()
    torch.backends.cudnn.allow_tf32 = True
    voxloom(program, folder, 0, 1, "training.precision=32", "--output", folder / "ours.npy")
    return float(np.abs(np.load(folder / "ours.npy") - expected).max())


def compile_network(network, wait):
    """For a full batch of windows and for the rest of one. Only afterwards cuDNN times its kernels: its choices are kept
    by shape and by whether TF32 is allowed, and that changes then."""
    compiled = torch.compile(network, dynamic=False)
    torch.backends.cudnn.benchmark = torch.backends.cudnn.allow_tf32 = False
    for windows in (BATCH, BATCH - 1):
        with torch.no_grad(), torch.autocast("cuda", torch.bfloat16):
            compiled(torch.zeros(windows, 1, WINDOW, WINDOW, WINDOW, device="cuda"))
    torch.cuda.synchronize()
    if wait:
        print("compiled", flush=True)
        sys.stdin.readline()
    torch.backends.cudnn.benchmark = torch.backends.cudnn.allow_tf32 = True
    return compiled


def time_side(compiled, inferer, arguments, folder, side):
    image = torch.randn(1, 1, side, side, side, device="cuda")
    np.save(folder / f"image{side}.npy", image[0, 0].cpu().numpy())

    def peer():
        torch.cuda.synchronize()
        start = time.perf_counter()
        with torch.no_grad(), torch.autocast("cuda", torch.bfloat16):
            inferer(image, compiled)
        torch.cuda.synchronize()
        return time.perf_counter() - start

    peer(), peer()
    costs = {"voxloom": [], "monai": []}
    for _ in range(arguments.rounds):
        row = voxloom(arguments.program, folder, side, arguments.repeats, "training.precision=bf16-mixed",
                      "--resident")
        costs["voxloom"] += [milliseconds / 1000 for milliseconds in row["times_ms"]]
        costs["monai"] += [peer() for _ in range(arguments.repeats)]
    return compare(costs, "voxloom", "monai")


def time_files(compiled, inferer, arguments, folder, side):
    """From image.npy to labels.npy, one pair a round."""
    source, target = folder / f"image{side}.npy", folder / "labels"

    def ours():
        start = time.perf_counter()
        done = subprocess.run([arguments.program, "predict", folder / "net.safetensors", source, "--output", target,
                               "--device", "cuda", f"inference.window={WINDOW},{WINDOW},{WINDOW}", "inference.tta=none",
                               f"inference.batch_size={BATCH}", "inference.format=npy"],
                              capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"voxloom failed:\n{done.stderr}")
        return time.perf_counter() - start

    def peer():
        start = time.perf_counter()
        image = torch.from_numpy(np.load(source)).cuda()[None, None]
        with torch.no_grad(), torch.autocast("cuda", torch.bfloat16):
            labels = inferer(image, compiled).argmax(1)
        np.save(folder / "peer.npy", labels[0].to(torch.uint8).cpu().numpy())
        return time.perf_counter() - start

    return compare(interleave({"voxloom": ours, "monai": peer}, arguments.files), "voxloom", "monai")


def row_of(case, result, bar, name):
    high = 1 / result["low"]
    said = "" if bar is None else f", at most {bar}: {high <= bar}"
    print(f"{case}: voxloom {result['ours'] * 1000:.0f} ms, MONAI compiled {result['peer'] * 1000:.0f} ms, ratio "
          f"{1 / result['ratio']:.3f} ({1 / result['high']:.3f} to {high:.3f}, {result['pairs']} pairs){said}", flush=True)
    return ["gpu_infer_peers", f"{case}, MONAI compiled (ms; ratio of costs)", round(result["ours"] * 1000, 1),
            round(result["peer"] * 1000, 1), round(1 / result["ratio"], 3), round(1 / result["high"], 3), round(high, 3),
            result["pairs"], "" if bar is None else bar, "" if bar is None else "holds" if high <= bar else "FAILS",
            name, datetime.date.today().isoformat(), torch.cuda.get_device_name()]


def append_row(row):
    path = HERE / "results" / "gpu_infer.csv"
    is_new = not path.exists()
    with open(path, "a", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        if is_new:
            writer.writerow(bench_results.COLUMNS)
        writer.writerow(row)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", default=str(HERE.parent / "build" / "gpu" / "voxloom"))
    parser.add_argument("--sides", type=int, nargs="+", default=[320, 512])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--files", type=int, default=5, help="pairs from file to file")
    parser.add_argument("--wait", action="store_true", help="compile, then wait for a line of input")
    parser.add_argument("--csv", action="store_true")
    parser.add_argument("--commit", default="")
    arguments = parser.parse_args()
    if not pathlib.Path(arguments.program).exists():
        sys.exit(f"{arguments.program} does not exist; build with CUDA first, or name the program with --program")
    if not torch.cuda.is_available():
        sys.exit("there is no GPU here that torch can use")
    torch.backends.cudnn.benchmark = True
    network = make_network()
    inferer = SlidingWindowInferer([WINDOW] * 3, BATCH, 0.5, "gaussian", progress=False)
    holds = True
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        torch.save(network.state_dict(), folder / "net.pt")
        subprocess.run([arguments.program, "weights", "import", folder / "net.pt", "--output", folder / "net.safetensors",
                        "data.preprocess=[]", "training.precision=bf16-mixed"], check=True, capture_output=True)
        difference = equal_in_float32(network, inferer, arguments.program, folder)
        holds &= difference <= 1e-4
        print(f"float32: largest difference {difference:.1e}, at most 1e-4: {difference <= 1e-4}", flush=True)
        compiled = compile_network(network.to(memory_format=torch.channels_last_3d), arguments.wait)
        for side in arguments.sides:
            bar = BARS.get(side)
            result = time_side(compiled, inferer, arguments, folder, side)
            holds &= bar is None or 1 / result["low"] <= bar
            rows = [row_of(f"sliding windows {side}^3", result, bar, arguments.commit)]
            if arguments.files > 0:
                rows.append(row_of(f"file to file {side}^3, our start included",
                                   time_files(compiled, inferer, arguments, folder, side), None, arguments.commit))
            for row in rows if arguments.csv else []:
                append_row(row)
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
