"""Random arrays for the tests of formats, and the ways they go through the program."""
import numpy as np

TYPES = ["uint8", "int8", "uint16", "int16", "uint32", "int32", "float32", "float64"]
READ_AS = {"bool": "uint8", "int64": "int32", "uint64": "uint32", "float16": "float32"}


def random_array(draw, dtype, shape=None, most=40):
    generator = np.random.default_rng(draw.randrange(2**32))
    shape = shape or tuple(draw.randrange(1, most) for _ in range(3))
    if np.dtype(dtype).kind == "b":
        return generator.random(shape) < 0.5
    if np.dtype(dtype).kind == "f":  # coarse steps, so that packing has something to do
        return (generator.integers(-40, 40, shape) / 4).astype(dtype)
    info = np.iinfo(dtype)
    values = generator.integers(max(info.min, -100), 100, shape)
    array = values.astype(dtype)
    array.flat[0], array.flat[-1] = (info.min, info.max) if info.bits <= 32 else (array.flat[0], array.flat[-1])
    return array


def random_shape(draw, most=40):
    shape = tuple(draw.randrange(1, most) for _ in range(3))
    return (draw.randrange(2, 4), *shape) if draw.random() < 0.3 else shape


def random_chunks(draw, shape):
    return tuple(draw.randrange(1, size + 1) for size in shape)


def read_through(voxloom, path, tmp_path, *options):
    out = tmp_path / "read-through.npy"
    voxloom("convert", path, out, *options)
    return np.load(out)


def refused(voxloom, path, *words):
    result = voxloom("inspect", path, check=False)
    assert result.returncode == 1, result.stdout + result.stderr
    assert result.stderr.count("\n") == 1, f"more than one sentence: {result.stderr}"
    for word in words:
        assert word in result.stderr, result.stderr
    return result.stderr


def expected_of(array):
    return array.astype(READ_AS.get(str(array.dtype), array.dtype))
