"""Augmentation of one sample (image and label) on one core, voxloom beside MONAI, TorchIO and nnU-Net.

    python bench/augment_peers.py [--program build/voxloom] [--rounds 11] [--json FILE]

elastic   72x136x136, elastic deformation, rotation and scale every time: 7 control points along each axis, shifted by
          up to 7.5 voxels. TorchIO's RandomElasticDeformation has the same; MONAI's Rand3DElastic smooths white noise
          instead, with a Gaussian as wide as those control points' splines and the magnitude of the same deviation.
nnunet    128^3, nnU-Net v2's default list by its own package batchgeneratorsv2 from its enlarged patch, beside
          augmentation.preset=nnunet. The list is mostly chance, so a round is the mean over several samples.

Volumes lie in memory as uint8. Costs are CPU time of the one thread. A peer that is not installed is said to be absent.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy
import torch

import pairs

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent
PATCH = {"elastic": (72, 136, 136), "nnunet": (128, 128, 128)}
ELASTIC = [f"augmentation.{name}.{key}" for name in ("elastic", "rotate", "scale") for key in ("enabled=true", "prob=1")]
ELASTIC += ["augmentation.elastic.control_points=7", "augmentation.elastic.distribution=uniform",
            "augmentation.elastic.magnitude=7.5,7.5", "augmentation.rotate.degrees=-30,30",
            "augmentation.scale.range=0.7,1.3"]
CALLS = {"elastic": 2, "nnunet": 100}
BARS = {"elastic": 25, "nnunet": 8}


def make_volumes(folder, side=320):
    source = numpy.random.default_rng(0)
    image = source.integers(0, 255, (side,) * 3, dtype=numpy.uint8)
    label = (source.random((side,) * 3, dtype=numpy.float32) > 0.9).astype(numpy.uint8)
    numpy.save(folder / "image.npy", image)
    numpy.save(folder / "label.npy", label)
    return image, label


class Voxloom:
    def __init__(self, program, folder, what, overrides):
        size = ",".join(map(str, PATCH[what]))
        self.calls = CALLS[what] * 2
        self.command = [str(program), "bench", "augment", "--image", str(folder / "image.npy"), "--label",
                        str(folder / "label.npy"), "--repeats", str(self.calls + 1), "--json",
                        f"data.patch_size={size}", *overrides]
        self.first = 0

    def __call__(self):
        self.first += self.calls + 1
        said = subprocess.run([*self.command, "--first-sample", str(self.first)], check=True, capture_output=True,
                              text=True).stdout
        return float(numpy.mean(json.loads(said)[0]["all_cpu_ms"][1:]))  # the first touches its memory


class Peer:
    def __init__(self, what, augment):
        self.calls, self.augment = CALLS[what], augment

    def __call__(self):
        start = time.thread_time()
        for _ in range(self.calls):
            self.augment()
        return 1e3 * (time.thread_time() - start) / self.calls


def crop(image, label, size, source):
    begin = [source.integers(0, n - s + 1) for n, s in zip(image.shape, size)]
    place = tuple(slice(b, b + s) for b, s in zip(begin, size))
    return image[place], label[place]


def monai_elastic(image, label):
    from monai import transforms as T
    keys, modes, patch = ["image", "label"], ["bilinear", "nearest"], PATCH["elastic"]
    chain = T.Compose([
        T.EnsureChannelFirstd(keys, channel_dim="no_channel"),
        T.RandSpatialCropd(keys, roi_size=patch, random_size=False),
        T.ScaleIntensityRanged("image", 0, 255, 0, 1),
        T.CastToTyped("image", torch.float32),
        T.Rand3DElasticd(keys, sigma_range=(10, 10), magnitude_range=(527, 527), prob=1.0, rotate_range=(0.52,) * 3,
                         scale_range=(0.3,) * 3, spatial_size=patch, mode=modes, padding_mode="zeros")])
    chain.set_random_state(0)
    return lambda: chain({"image": image, "label": label})


def torchio_elastic(image, label):
    import torchio as tio
    source = numpy.random.default_rng(1)
    chain = tio.Compose([tio.RandomAffine(scales=(0.7, 1.3), degrees=30),
                         tio.RandomElasticDeformation(num_control_points=7, max_displacement=7.5)])

    def augment():
        a, b = crop(image, label, PATCH["elastic"], source)
        chain(tio.Subject(image=tio.ScalarImage(tensor=torch.from_numpy(a.astype(numpy.float32)[None] / 255)),
                          label=tio.LabelMap(tensor=torch.from_numpy(b.copy()[None]))))
    return augment


def nnunet_list(image, label):
    from batchgeneratorsv2.transforms.intensity.brightness import MultiplicativeBrightnessTransform
    from batchgeneratorsv2.transforms.intensity.contrast import BGContrast, ContrastTransform
    from batchgeneratorsv2.transforms.intensity.gamma import GammaTransform
    from batchgeneratorsv2.transforms.intensity.gaussian_noise import GaussianNoiseTransform
    from batchgeneratorsv2.transforms.noise.gaussian_blur import GaussianBlurTransform
    from batchgeneratorsv2.transforms.spatial.low_resolution import SimulateLowResolutionTransform
    from batchgeneratorsv2.transforms.spatial.mirroring import MirrorTransform
    from batchgeneratorsv2.transforms.spatial.spatial import SpatialTransform
    from batchgeneratorsv2.transforms.utils.compose import ComposeTransforms
    from batchgeneratorsv2.transforms.utils.random import RandomTransform
    patch, angle = PATCH["nnunet"], numpy.pi / 6
    each = {"synchronize_channels": False, "p_per_channel": 1}
    gamma = {"gamma": BGContrast((0.7, 1.5)), "p_retain_stats": 1, **each}
    chain = ComposeTransforms([
        SpatialTransform(patch, patch_center_dist_from_border=0, random_crop=False, p_elastic_deform=0, p_rotation=0.2,
                         rotation=(-angle, angle), p_scaling=0.2, scaling=(0.7, 1.4),
                         p_synchronize_scaling_across_axes=1, bg_style_seg_sampling=False),
        RandomTransform(GaussianNoiseTransform(noise_variance=(0, 0.1), p_per_channel=1, synchronize_channels=True), 0.1),
        RandomTransform(GaussianBlurTransform(blur_sigma=(0.5, 1.0), synchronize_channels=False, synchronize_axes=False,
                                              p_per_channel=0.5, benchmark=True), 0.2),
        RandomTransform(MultiplicativeBrightnessTransform(multiplier_range=BGContrast((0.75, 1.25)), **each), 0.15),
        RandomTransform(ContrastTransform(contrast_range=BGContrast((0.75, 1.25)), preserve_range=True, **each), 0.15),
        RandomTransform(SimulateLowResolutionTransform(scale=(0.5, 1), synchronize_channels=False, synchronize_axes=True,
                                                       ignore_axes=None, allowed_channels=None, p_per_channel=0.5), 0.25),
        RandomTransform(GammaTransform(p_invert_image=1, **gamma), 0.1),
        RandomTransform(GammaTransform(p_invert_image=0, **gamma), 0.3),
        MirrorTransform(allowed_axes=(0, 1, 2))])
    source = numpy.random.default_rng(2)
    enlarged = (205,) * 3

    def augment():
        a, b = crop(image, label, enlarged, source)
        chain(image=torch.from_numpy(a.astype(numpy.float32)[None] / 255),
              segmentation=torch.from_numpy(b.astype(numpy.int16)[None]))
    return augment


PEERS = {"elastic": {"MONAI": monai_elastic, "TorchIO": torchio_elastic}, "nnunet": {"nnU-Net": nnunet_list}}


def contenders_of(what, program, folder, image, label):
    overrides = ELASTIC if what == "elastic" else ["augmentation.preset=nnunet"]
    contenders = {"voxloom": Voxloom(program, folder, what, overrides)}
    for name, make in PEERS[what].items():
        try:
            contenders[name] = Peer(what, make(image, label))
        except ImportError as missing:
            print(f"{what:8} {name} is absent: {missing}")
    return contenders


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", default=REPOSITORY / "build" / "voxloom", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--only", choices=list(PEERS))
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    results, failed = {}, False
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        image, label = make_volumes(folder)
        for what in [options.only] if options.only else PEERS:
            costs = pairs.interleave(contenders_of(what, options.program, folder, image, label), options.rounds)
            for peer in [peer for peer in costs if peer != "voxloom"]:
                result = pairs.compare(costs, "voxloom", peer) | {"bar": BARS[what]}
                results[f"{what} {peer}"] = result
                failed = failed or result["low"] < BARS[what]
                print(f"{what:8} voxloom {result['ours']:6.1f} ms  {peer:8} {result['peer']:7.1f} ms  ratio "
                      f"{result['ratio']:5.1f} [{result['low']:.1f}, {result['high']:.1f}]  bar {BARS[what]}: "
                      f"{pairs.verdict(result, BARS[what])}", flush=True)
    if options.json:
        options.json.write_text(json.dumps(results, indent=2))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
