"""Data that do not fit: 60 LZW TIFF pairs of 320^3 with room for 4 volumes, against everything cached.

The bar is 0.8x the patches per second of the cached run, on two threads, from the second epoch on. Both runs are warmed
up by an epoch each, then measured in interleaved pairs.
"""
import argparse
import json
import pathlib
import shutil
import subprocess

import pairs

RECIPE = """
data:
  root: {root}
  images: ["train_images/*.tif"]
  label: "train_labels/{{id}}.tif"
  cache_dir: {root}/cache
  split: none
  ignore_label: 2
  patch_size: {patch}
  batch_size: 2
augmentation:
  flip: {{enabled: true}}
  rotate: {{enabled: true, prob: 0.3}}
"""


def make_data(program, folder, count, size, distinct=6):
    """A few scrolls, copied under other names: what counts is how many files there are, not that they differ."""
    if (folder / "recipe.yaml").exists():
        return
    subprocess.run([program, "synth", "scroll", folder, "--count", str(distinct), "--size", str(size)], check=True)
    for kind in ("train_images", "train_labels"):
        for number in range(distinct, count):
            shutil.copy(folder / kind / f"scroll_{number % distinct:03d}.tif", folder / kind / f"scroll_{number:03d}.tif")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", default="build/voxloom")
    parser.add_argument("--folder", type=pathlib.Path, required=True, help="scratch folder, about 7 GB")
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--size", type=int, default=320)
    parser.add_argument("--patch", default="[72, 136, 136]")
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--batches", type=int, default=30)
    arguments = parser.parse_args()
    make_data(arguments.program, arguments.folder, arguments.count, arguments.size)
    recipe = arguments.folder / "recipe.yaml"
    recipe.write_text(RECIPE.format(root=arguments.folder.resolve(), patch=arguments.patch))
    volume_gb = arguments.size**3 / 2**30
    caches = {"cached": volume_gb * arguments.count * 2 * 1.1, "tight": volume_gb * 4}

    def cost(cache_gb, batches, first_step):
        out = subprocess.run([arguments.program, "bench", "data", recipe, f"data.cache_gb={cache_gb}", "--threads", "2",
                              "--batches", str(batches), "--warm-up", str(arguments.count), "--first-step",
                              str(first_step), "--json"], check=True, capture_output=True, text=True)
        return 1 / json.loads(out.stdout)[0]["patches_per_s"]

    step = [0]

    def measured(name):
        def run():
            step[0] += 1
            return cost(caches[name], arguments.batches, arguments.count * (1 + step[0] // 2))
        return run

    costs = pairs.interleave({name: measured(name) for name in caches}, arguments.pairs)
    result = pairs.compare(costs, "tight", "cached")
    print(f"tight {1 / result['ours']:.2f} patches/s, cached {1 / result['peer']:.2f} patches/s; ratio "
          f"{result['ratio']:.3f} [{result['low']:.3f}, {result['high']:.3f}] over {result['pairs']} pairs: "
          f"{pairs.verdict(result, 0.8)} at 0.8")


if __name__ == "__main__":
    main()
