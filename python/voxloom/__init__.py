"""Voxloom's kernels for PyTorch: operators on tensors of any memory layout, differentiable where it makes sense.

Volumes are the last three axes (z, y, x); all axes before them are volumes of their own. Tensors on a GPU are computed
there where the library was built with CUDA, else on the CPU and brought back, as soft skeletons in float64 are. Soft
skeletons in float32 are then those of probabilities: of values below 0 or above 1 the GPU's gradient is wrong, so give
such as float64. Persistence on a GPU takes fewer than 2^29 voxels, for tunnels 2^28: a larger volume is an error there,
and no error with `.cpu()`. Every function works under `torch.compile`, in which connected_components breaks the graph.
"""
import math
import os
from pathlib import Path

import torch

__all__ = ["edt", "signed_distance", "soft_skeleton", "cldice", "dice_bce", "connected_components", "persistence_pairs",
           "thin", "betti_numbers"]


def _library():
    here = Path(__file__).resolve().parent
    places = [Path(os.environ["VOXLOOM_OPS"])] if "VOXLOOM_OPS" in os.environ else [
        here / "libvoxloom_ops.so", here.parents[1] / "build" / "python" / "libvoxloom_ops.so"]
    for place in places:
        if place.exists():
            return str(place)
    raise ImportError("voxloom: libvoxloom_ops.so is not there; build it by `make python`, or name it in VOXLOOM_OPS")


torch.ops.load_library(_library())
_ops = torch.ops.voxloom


def _device_of(*tensors):
    devices = {str(tensor.device) for tensor in tensors}
    if len(devices) > 1:
        raise ValueError(f"voxloom: tensors are on {' and '.join(sorted(devices))}; bring them to one device")
    return tensors[0].device


def _for_gpu_tensors(name):
    on_cpu = getattr(_ops, name).default
    on_gpu = getattr(_ops, name + "_cuda").default if hasattr(_ops, name + "_cuda") else None

    def compute(*arguments):
        tensors = [a for a in arguments if isinstance(a, torch.Tensor)]
        device = _device_of(*tensors)
        wide = name.startswith("soft_skeleton") and tensors[0].dtype == torch.float64
        if on_gpu is not None and not wide:
            with torch.cuda.device(device):
                return on_gpu(*arguments, torch.cuda.current_stream(device).cuda_stream)
        return on_cpu(*(a.cpu() if isinstance(a, torch.Tensor) else a for a in arguments)).to(device)

    torch.library.register_kernel(f"voxloom::{name}", "cuda", compute)


def _shapes():
    fake = torch.library.register_fake
    fake("voxloom::edt")(lambda mask, z, y, x, limit: torch.empty_like(mask, dtype=torch.float32))
    fake("voxloom::signed_distance")(lambda mask, z, y, x, limit: torch.empty_like(mask, dtype=torch.float32))
    fake("voxloom::soft_skeleton")(lambda values, iterations, cube: torch.empty_like(values))
    fake("voxloom::soft_skeleton_backward")(lambda grad, values, iterations, cube: torch.empty_like(values))
    fake("voxloom::connected_components")(lambda labels, connectivity: torch.empty_like(labels))
    fake("voxloom::thin")(lambda mask, dimensions: torch.empty_like(mask))
    fake("voxloom::betti_numbers")(lambda mask: mask.new_empty((*mask.shape[:-3], 3), dtype=torch.int64))
    fake("voxloom::dice_bce_sums")(lambda logits, target: logits.new_empty((logits.shape[0], 5), dtype=torch.float64))
    fake("voxloom::dice_bce_backward")(lambda grads, logits, target: torch.empty_like(logits))

    @torch.library.register_fake("voxloom::persistence_pairs")
    def _(values, dimension, falling, cubes):
        return values.new_empty((torch.library.get_ctx().new_dynamic_size(), 2), dtype=torch.int64)


def _gradients():
    def keep_skeleton(ctx, inputs, output):
        values, ctx.iterations, ctx.cube = inputs
        ctx.save_for_backward(values)

    def skeleton_backward(ctx, grad):
        (values,) = ctx.saved_tensors
        return _ops.soft_skeleton_backward(grad.contiguous(), values, ctx.iterations, ctx.cube), None, None

    torch.library.register_autograd("voxloom::soft_skeleton", skeleton_backward, setup_context=keep_skeleton)

    def keep_sums(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    def sums_backward(ctx, grads):
        logits, target = ctx.saved_tensors
        return _ops.dice_bce_backward(grads.contiguous(), logits, target), None

    torch.library.register_autograd("voxloom::dice_bce_sums", sums_backward, setup_context=keep_sums)


for _name in ("edt", "signed_distance", "soft_skeleton", "soft_skeleton_backward", "connected_components",
              "persistence_pairs", "dice_bce_sums", "dice_bce_backward", "thin", "betti_numbers"):
    _for_gpu_tensors(_name)
_shapes()
_gradients()


def _bytes(mask):
    return (mask != 0).to(torch.uint8).contiguous()


@torch.compiler.disable  # it looks at the values
def _labels(labels):
    """As int32, in which what was equal is equal and 0 is 0: numbers of objects may need more bits."""
    if labels.dtype in (torch.uint32, torch.uint64):
        labels = labels.view(torch.int32 if labels.dtype == torch.uint32 else torch.int64)
    narrow = labels.to(torch.int32)
    wide = labels.dtype == torch.int64 or labels.is_floating_point()
    if not wide or bool((narrow == labels).all()):
        return narrow.contiguous()
    if labels.is_floating_point() and not bool((labels == labels.round()).all()):
        raise ValueError("voxloom: labels are not whole numbers; of probabilities take a mask, as probabilities > 0.5")
    places = torch.unique(labels, return_inverse=True)[1]
    return torch.where(labels == 0, 0, places + 1).to(torch.int32).contiguous()


def edt(mask, spacing=(1.0, 1.0, 1.0), limit=math.inf):
    """Exact Euclidean distance from each voxel of the mask to the nearest voxel outside it; 0 outside. Distances above
    `limit` become it; a small limit is cheap. The border of the volume is no outside."""
    return _ops.edt(_bytes(mask), *map(float, spacing), float(limit))


def signed_distance(mask, spacing=(1.0, 1.0, 1.0), limit=math.inf):
    """Positive outside the mask, negative inside."""
    return _ops.signed_distance(_bytes(mask), *map(float, spacing), float(limit))


def soft_skeleton(values, iterations=3, erosion="cross"):
    """Soft skeleton of clDice, with gradient. `erosion`: "cross" as MONAI, "cube" as plain 3x3x3 poolings. The backward
    pass erodes anew: its memory does not depend on the iterations."""
    if erosion not in ("cross", "cube"):
        raise ValueError(f'voxloom: erosion is "cross" or "cube", not "{erosion}"')
    wide = values if values.dtype in (torch.float32, torch.float64) else values.float()
    return _ops.soft_skeleton(wide.contiguous(), int(iterations), erosion == "cube").to(values.dtype)


def cldice(prediction, target, iterations=3, erosion="cross", smooth=1.0):
    """1 - clDice of probabilities and a mask of the same shape, over everything at once (Shit et al. 2021)."""
    if prediction.shape != target.shape:
        raise ValueError(f"voxloom: prediction is {tuple(prediction.shape)} and target {tuple(target.shape)}")
    _device_of(prediction, target)
    if prediction.dtype in (torch.float16, torch.bfloat16):
        prediction = prediction.float()  # sums over a volume are beyond half precision
    target = target.to(prediction.dtype)
    of_prediction, of_target = (soft_skeleton(v, iterations, erosion) for v in (prediction, target))
    precision = ((of_prediction * target).sum() + smooth) / (of_prediction.sum() + smooth)
    sensitivity = ((of_target * prediction).sum() + smooth) / (of_target.sum() + smooth)
    return 1 - 2 * precision * sensitivity / (precision + sensitivity)


def dice_bce(logits, target, dice_weight=1.0, bce_weight=1.0, smooth=1.0, ignore=None):
    """Soft Dice of each sample (first axis) and mean binary cross entropy, from logits, in one pass over the voxels."""
    if logits.shape != target.shape:
        raise ValueError(f"voxloom: logits are {tuple(logits.shape)} and target {tuple(target.shape)}")
    _device_of(logits, target)
    values = target.float()
    if ignore is not None:
        values = torch.where(target == ignore, torch.full_like(values, -1), values)
    sums = _ops.dice_bce_sums(logits.float().contiguous(), values.contiguous())
    overlap, predicted, wanted, entropy, voxels = sums.unbind(1)
    dice = (1 - (2 * overlap + smooth) / (predicted + wanted + smooth)).mean()
    bce = entropy.sum() / voxels.sum().clamp_min(1)
    return (dice_weight * dice + bce_weight * bce).to(torch.float32)


def connected_components(labels, connectivity=26):
    """Components of equal labels (of a mask: of its foreground), numbered from 1 in each volume by their first voxels;
    int32."""
    return _ops.connected_components(_labels(labels), int(connectivity))


def persistence_pairs(values, dimension=0, level="rising", construction="vertices"):
    """Birth and death voxels (flat indices; -1: never dies) of the components (dimension 0), tunnels (1) or cavities (2)
    of one volume while a level rises or falls through its values. Voxels are vertices or closed cubes."""
    if level not in ("rising", "falling") or construction not in ("vertices", "cubes"):
        raise ValueError("voxloom: level is rising or falling, construction vertices or cubes")
    return _ops.persistence_pairs(values.detach().float().contiguous(), int(dimension), level == "falling",
                                  construction == "cubes")


def thin(mask, dimensions=3):
    """Skeleton by thinning, voxel for voxel that of scikit-image's skeletonize: of each slice along z by itself
    (`dimensions=2`, Zhang and Suen) or of volumes (3, Lee, Kashyap and Chu); bool."""
    return _ops.thin(_bytes(mask), int(dimensions)).bool()


def betti_numbers(mask):
    """Components, tunnels and cavities of each volume, [..., 3] in int64. Voxels are vertices: the foreground connects
    through faces, the background through corners. A cavity does not touch the edge of its volume."""
    return _ops.betti_numbers(_bytes(mask))
