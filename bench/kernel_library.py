"""The kernels as functions on numpy arrays: bench/kernel_shim.cpp compiled against a build's libraries.

Benchmarks and tests call kernels and their peers on the same arrays in one process.
"""
import ctypes
import pathlib
import subprocess

import numpy

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent


class Kernels:
    def __init__(self, build, folder):
        library = pathlib.Path(folder) / "kernels.so"
        archives = [str(pathlib.Path(build) / "src" / f"libvox_{name}.a") for name in ("kernels", "base")]
        subprocess.run(["g++", "-std=c++20", "-O2", "-march=x86-64-v3", "-shared", "-fPIC", "-I", str(REPOSITORY / "src"),
                        str(REPOSITORY / "bench" / "kernel_shim.cpp"), *archives, "-lpthread", "-o", str(library)], check=True)
        self.library = ctypes.CDLL(str(library))
        self.library.shim_components.restype = self.library.shim_persistence.restype = ctypes.c_int64

    def call(self, name, *arguments):
        """Arrays as pointers, and after them the extent of the last array; whole numbers as int."""
        arrays = [argument for argument in arguments if isinstance(argument, numpy.ndarray)]
        rest = [argument for argument in arguments if not isinstance(argument, numpy.ndarray)]
        assert all(array.flags.c_contiguous for array in arrays)
        return getattr(self.library, f"shim_{name}")(*(array.ctypes.data_as(ctypes.c_void_p) for array in arrays),
                                                     *map(ctypes.c_int64, arrays[-1].shape), *map(ctypes.c_int, rest))

    def thin(self, mask, dimensions):
        out = numpy.empty_like(mask)
        self.call("thin", out, mask, dimensions)
        return out

    def dilate(self, mask, times):
        out = numpy.empty_like(mask)
        self.call("dilate", out, mask, times)
        return out

    def close(self, mask):
        out = numpy.empty_like(mask)
        self.call("close", out, mask)
        return out

    def persistence(self, values, dimension, falling=False, cubes=False):
        """Pairs of voxels, [n, 2]; a death of -1 is none."""
        pairs = numpy.empty((3 * values.size + 1, 2), numpy.int64)
        return pairs[:self.call("persistence", pairs, values, dimension, int(falling), int(cubes))]

    def soft_skeleton(self, values, iterations, cube):
        out = numpy.empty_like(values)
        self.call("soft_skeleton", out, values, iterations, int(cube))
        return out

    def soft_skeleton_backward(self, gradient, values, iterations, cube):
        out = numpy.empty_like(values)
        self.call("soft_skeleton_backward", out, gradient, values, iterations, int(cube))
        return out
