"""HDF5, Zarr, NRRD, PNG stacks and OpenKBP patients, against h5py, zarr-python, pynrrd, imageio and pandas."""
import json
import pathlib
import shutil
import tarfile

import h5py
import imageio.v3 as imageio
import nrrd
import numcodecs
import numpy as np
import pandas
import pytest
import zarr

from conftest import SHARED

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


def expected_of(array):
    return array.astype(READ_AS.get(str(array.dtype), array.dtype))


# ---- Zarr ----

def zarr2_codec(draw):
    return draw.choice([
        None, numcodecs.GZip(1), numcodecs.Zlib(1), numcodecs.Zstd(1), numcodecs.LZ4(),
        *(numcodecs.Blosc(cname, clevel=draw.randrange(0, 6), shuffle=shuffle)
          for cname in ("lz4", "lz4hc", "zstd", "zlib") for shuffle in (0, 1, 2))])


def zarr3_codecs(draw):
    codecs = zarr.codecs
    return draw.choice([
        None, codecs.GzipCodec(level=1), codecs.ZstdCodec(level=1, checksum=True), codecs.Crc32cCodec(),
        *(codecs.BloscCodec(cname=cname, shuffle=shuffle)
          for cname in ("lz4", "zstd") for shuffle in ("noshuffle", "shuffle", "bitshuffle"))])


@pytest.mark.parametrize("dtype", TYPES + ["bool", "int64", "uint64", "float16"])
def test_zarr_version_2(voxloom, draw, tmp_path, dtype):
    for number in range(3):
        array = random_array(draw, dtype, random_shape(draw))
        order, byte_order = draw.choice("CF"), draw.choice("<>")
        codec, separator = zarr2_codec(draw), draw.choice("./")
        chunks = random_chunks(draw, array.shape)
        print(number, array.shape, chunks, order, byte_order, codec, separator)
        stored = zarr.create_array(tmp_path / f"{number}.zarr", shape=array.shape, chunks=chunks, zarr_format=2,
                                   dtype=np.dtype(dtype).newbyteorder(byte_order), compressors=codec, order=order,
                                   chunk_key_encoding={"name": "v2", "separator": separator})
        stored[...] = array
        got = read_through(voxloom, tmp_path / f"{number}.zarr", tmp_path)
        assert np.array_equal(got, expected_of(array))


@pytest.mark.parametrize("dtype", TYPES + ["bool", "int64", "float16"])
def test_zarr_version_3(voxloom, draw, tmp_path, dtype):
    for number in range(3):
        array = random_array(draw, dtype, random_shape(draw))
        chunks = random_chunks(draw, array.shape)
        shards = tuple(size * draw.randrange(1, 4) for size in chunks) if draw.random() < 0.5 else None
        axes = list(range(array.ndim))
        draw.shuffle(axes)
        filters = [zarr.codecs.TransposeCodec(order=tuple(axes))] if draw.random() < 0.5 else None
        codec = zarr3_codecs(draw)
        keys = {"name": draw.choice(["default", "v2"]), "separator": draw.choice("./")}
        print(number, array.shape, chunks, shards, axes if filters else "", codec, keys)
        stored = zarr.create_array(tmp_path / f"{number}.zarr", shape=array.shape, chunks=chunks, shards=shards,
                                   dtype=dtype, filters=filters, compressors=codec, chunk_key_encoding=keys,
                                   serializer=zarr.codecs.BytesCodec(endian=draw.choice(["little", "big"])))
        stored[...] = array
        got = read_through(voxloom, tmp_path / f"{number}.zarr", tmp_path)
        assert np.array_equal(got, expected_of(array))


@pytest.mark.parametrize("location", ["start", "end"])
@pytest.mark.parametrize("fill", [7, 0])
def test_zarr_missing_chunks_are_the_fill_value(voxloom, draw, tmp_path, location, fill):
    sharding = zarr.codecs.ShardingCodec(chunk_shape=(4, 5, 6), index_location=location)
    array = np.full((17, 21, 19), fill, "int16")
    for name, options in {"sharded": {"chunks": (8, 10, 12), "serializer": sharding, "compressors": None},
                          "version 2": {"chunks": (4, 5, 6), "zarr_format": 2}}.items():
        stored = zarr.create_array(tmp_path / f"{name}.zarr", shape=array.shape, dtype="int16", fill_value=fill, **options)
        stored[5:7, 3:9, 2:4] = array[5:7, 3:9, 2:4] = 3
        assert np.array_equal(read_through(voxloom, tmp_path / f"{name}.zarr", tmp_path), array)


@pytest.mark.parametrize("fill", ["NaN", "Infinity", -2.5, None])
def test_zarr_odd_fill_values(voxloom, tmp_path, fill):
    zarr.create_array(tmp_path / "a.zarr", shape=(2, 3, 4), chunks=(2, 3, 4), dtype="float32", zarr_format=2)
    meta = json.loads((tmp_path / "a.zarr/.zarray").read_text()) | {"fill_value": fill}
    (tmp_path / "a.zarr/.zarray").write_text(json.dumps(meta))
    value = 0 if fill is None else float(fill)
    got = read_through(voxloom, tmp_path / "a.zarr", tmp_path)
    assert np.array_equal(got, np.full((2, 3, 4), value, "float32"), equal_nan=True)


@pytest.mark.parametrize("version", [2, 3])
def test_ome_zarr_levels(voxloom, draw, tmp_path, version):
    image = random_array(draw, "uint8", (1, 1, 20, 30, 24))
    group = zarr.create_group(tmp_path / "image.zarr", zarr_format=version)
    datasets = []
    for level in range(2):
        group.create_array(str(level), data=image[..., ::2**level, ::2**level, ::2**level], chunks=(1, 1, 8, 8, 8))
        scale = [1, 1, 2.0 * 2**level, 0.5 * 2**level, 0.25 * 2**level]
        datasets.append({"path": str(level), "coordinateTransformations": [{"type": "scale", "scale": scale}]})
    axes = [{"name": "t", "type": "time"}, {"name": "c", "type": "channel"},
            *({"name": name, "type": "space", "unit": "micrometer"} for name in "zyx")]
    multiscales = [{"axes": axes, "datasets": datasets}]
    group.attrs.update({"multiscales": multiscales} if version == 2 else {"ome": {"multiscales": multiscales}})
    assert np.array_equal(read_through(voxloom, tmp_path / "image.zarr", tmp_path), image[0, 0])
    assert np.array_equal(read_through(voxloom, f"{tmp_path}/image.zarr:1", tmp_path), image[0, 0, ::2, ::2, ::2])
    for name in (f"{tmp_path}/image.zarr:1", tmp_path / "image.zarr/1"):
        facts = json.loads(voxloom("inspect", name, "--json").stdout)
        assert facts["spacing"] == pytest.approx([4e-3, 1e-3, 0.5e-3]) and facts["shape"] == [10, 15, 12]
        assert facts["format"] == "zarr"
    refused(voxloom, f"{tmp_path}/image.zarr:5", "5", "0, 1")


def test_zarr_groups_and_old_layouts(voxloom, draw, tmp_path):
    group = zarr.create_group(tmp_path / "g.zarr")
    array = random_array(draw, "uint8")
    group.create_array("raw", data=array)
    assert np.array_equal(read_through(voxloom, tmp_path / "g.zarr", tmp_path), array)
    group.create_array("label", data=array)
    refused(voxloom, tmp_path / "g.zarr", "label", "raw")
    (tmp_path / "old.n5").mkdir()
    (tmp_path / "old.n5/attributes.json").write_text('{"dimensions": [3, 4, 5], "blockSize": [3, 4, 5]}')
    refused(voxloom, tmp_path / "old.n5", "N5")
    (tmp_path / "one.zarr").mkdir()
    (tmp_path / "one.zarr/meta").write_text("{}")
    (tmp_path / "one.zarr/attrs").write_text("{}")
    refused(voxloom, tmp_path / "one.zarr", "version 1")
    (tmp_path / "bare.zarr").mkdir()
    refused(voxloom, tmp_path / "bare.zarr", ".zarray")


@pytest.mark.parametrize("codec", ["blosc", "none", "gzip", "zlib", "zstd", "lz4"])
def test_zarr_python_reads_ours(voxloom, draw, tmp_path, codec):
    for number in range(3):
        array = random_array(draw, draw.choice(TYPES), random_shape(draw))
        np.save(tmp_path / "a.npy", array)
        chunk = [draw.randrange(1, 30) for _ in range(3)]
        voxloom("convert", tmp_path / "a.npy", tmp_path / f"{number}.zarr", "--codec", codec, "--chunk",
                ",".join(map(str, chunk)))
        stored = zarr.open_array(tmp_path / f"{number}.zarr", mode="r")
        assert stored.dtype == array.dtype and np.array_equal(stored[...], array)
        assert not list(tmp_path.glob(".*"))


def test_writing_zarr_replaces_zarr_only(voxloom, draw, tmp_path):
    first, second = random_array(draw, "uint8"), random_array(draw, "int16")
    for array in (first, second):
        np.save(tmp_path / "a.npy", array)
        voxloom("convert", tmp_path / "a.npy", tmp_path / "out.zarr")
    assert np.array_equal(zarr.open_array(tmp_path / "out.zarr", mode="r")[...], second)
    (tmp_path / "mine.zarr").mkdir()
    (tmp_path / "mine.zarr/thesis.txt").write_text("years of work")
    result = voxloom("convert", tmp_path / "a.npy", tmp_path / "mine.zarr", check=False)
    assert result.returncode == 1 and (tmp_path / "mine.zarr/thesis.txt").exists()


def test_damaged_zarr_is_one_sentence(voxloom, draw, tmp_path):
    array = random_array(draw, "uint16", (20, 20, 20))
    path = tmp_path / "a.zarr"
    for codec in (None, numcodecs.GZip(1), numcodecs.Zstd(1), numcodecs.Blosc("lz4")):
        shutil.rmtree(path, ignore_errors=True)
        zarr.create_array(path, shape=array.shape, dtype="uint16", chunks=(10, 10, 10), zarr_format=2,
                          compressors=codec)[...] = array
        chunk = path / "0.1.0"
        content = chunk.read_bytes()
        chunk.write_bytes(content[:len(content) // 2])
        refused(voxloom, path, "0.1.0")
        chunk.write_bytes(b"")
        refused(voxloom, path, "0.1.0")
    (path / ".zarray").write_text('{"zarr_format": 2, "shape": [20, 20')
    refused(voxloom, path, ".zarray", "JSON")
    (path / ".zarray").write_text('{"zarr_format": 2, "chunks": [10, 10, 10]}')
    refused(voxloom, path, "shape")


def test_a_wrong_checksum_of_a_shard_is_noticed(voxloom, draw, tmp_path):
    array = random_array(draw, "uint8", (16, 16, 16))
    zarr.create_array(tmp_path / "a.zarr", shape=array.shape, dtype="uint8", chunks=(8, 8, 8), shards=(16, 16, 16),
                      compressors=[zarr.codecs.Crc32cCodec()])[...] = array
    shard = tmp_path / "a.zarr/c/0/0/0"
    content = bytearray(shard.read_bytes())
    for place in (draw.randrange(4096), len(content) - 10):
        damaged = bytearray(content)
        damaged[place] ^= 0x10
        shard.write_bytes(damaged)
        refused(voxloom, tmp_path / "a.zarr", "checksum")


# ---- HDF5 ----

def hdf5_filters(draw):
    return draw.choice([{}, {"compression": "gzip", "compression_opts": draw.randrange(0, 10)}, {"compression": "lzf"}]) | {
        "shuffle": draw.random() < 0.5, "fletcher32": draw.random() < 0.5}


@pytest.mark.parametrize("libver", ["earliest", ("v110", "v110")], ids=["earliest", "v110"])
@pytest.mark.parametrize("dtype", TYPES + ["bool", "int64", "uint64", "float16"])
def test_hdf5(voxloom, draw, tmp_path, dtype, libver):
    arrays = {}
    with h5py.File(tmp_path / "a.h5", "w", libver=libver) as file:
        for number in range(4):
            array = random_array(draw, dtype, random_shape(draw))
            chunked = draw.random() < 0.8
            options = hdf5_filters(draw) | {"chunks": random_chunks(draw, array.shape)} if chunked else {}
            stored_type = np.dtype(dtype).newbyteorder(draw.choice("<>"))
            print(number, array.shape, stored_type, options)
            name = draw.choice(["", "deep/er/"]) + f"d{number}"
            file.create_dataset(name, data=array.astype(stored_type), **options)
            arrays[name] = array
        file.create_dataset("table", data=np.arange(10))
    for name, array in arrays.items():
        assert np.array_equal(read_through(voxloom, f"{tmp_path}/a.h5:{name}", tmp_path), expected_of(array))
    refused(voxloom, tmp_path / "a.h5", *arrays)
    refused(voxloom, f"{tmp_path}/a.h5:nothing", "nothing", *arrays)


def test_hdf5_with_many_chunks_and_chunks_never_written(voxloom, draw, tmp_path):
    array = np.full((40, 41, 42), 9, "uint16")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        data = file.create_dataset("only", array.shape, "uint16", chunks=(2, 3, 4), fillvalue=9, compression="gzip")
        for _ in range(30):
            z, y, x = (draw.randrange(size) for size in array.shape)
            data[z:z + 9, y:y + 7, x:x + 8] = array[z:z + 9, y:y + 7, x:x + 8] = draw.randrange(1000)
        data.attrs["element_size_um"] = [40.0, 4.0, 8.0]
        file["text"] = "no volume"
    assert np.array_equal(read_through(voxloom, tmp_path / "a.h5", tmp_path), array)
    facts = json.loads(voxloom("inspect", tmp_path / "a.h5", "--json").stdout)
    assert facts["spacing"] == pytest.approx([0.04, 0.004, 0.008]) and facts["codec"] == "gzip"
    assert facts["maximum"] == array.max() and facts["mean"] == pytest.approx(array.mean())


def test_hdf5_layouts_that_only_the_library_knows(voxloom, draw, tmp_path):
    array = random_array(draw, "int16", (10, 12, 14))
    with h5py.File(tmp_path / "a.h5", "w", userblock_size=512) as file:
        file.create_dataset("block", data=array, chunks=(3, 4, 5), compression="gzip")
    assert np.array_equal(read_through(voxloom, tmp_path / "a.h5", tmp_path), array)
    with h5py.File(tmp_path / "b.h5", "w") as file:
        file.create_dataset("scaled", data=array, chunks=(3, 4, 5), scaleoffset=0)
        layout = h5py.VirtualLayout(shape=array.shape, dtype="int16")
        layout[...] = h5py.VirtualSource(file["scaled"])
        file.create_virtual_dataset("virtual", layout)
    for name in ("scaled", "virtual"):
        assert np.array_equal(read_through(voxloom, f"{tmp_path}/b.h5:{name}", tmp_path), array)


@pytest.mark.parametrize("codec", ["gzip", "none"])
def test_h5py_reads_ours(voxloom, draw, tmp_path, codec):
    for number in range(4):
        array = random_array(draw, draw.choice(TYPES), random_shape(draw, 90))
        np.save(tmp_path / "a.npy", array)
        chunk = ",".join(str(draw.randrange(1, 50)) for _ in range(3))
        voxloom("convert", tmp_path / "a.npy", tmp_path / "b.h5", "--codec", codec, "--chunk", chunk)
        with h5py.File(tmp_path / "b.h5") as file:
            assert list(file) == ["volume"] and file["volume"].dtype == array.dtype
            assert np.array_equal(file["volume"][...], array)
        assert np.array_equal(read_through(voxloom, tmp_path / "b.h5", tmp_path), array)


@pytest.mark.parametrize("options", [{"compression": "gzip"}, {"compression": "lzf"}, {"fletcher32": True}])
def test_damaged_hdf5_is_one_sentence(voxloom, draw, tmp_path, options):
    array = random_array(draw, "uint16", (32, 32, 32))
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("d", data=array, chunks=(16, 16, 16), **options)
        place = file["d"].id.get_chunk_info(3)
    content = bytearray((tmp_path / "a.h5").read_bytes())
    content[place.byte_offset:place.byte_offset + place.size] = bytes(
        byte ^ 0xA5 for byte in content[place.byte_offset:place.byte_offset + place.size])
    (tmp_path / "b.h5").write_bytes(content)
    refused(voxloom, tmp_path / "b.h5", "b.h5", "chunk")
    (tmp_path / "c.h5").write_bytes((tmp_path / "a.h5").read_bytes()[:draw.randrange(100, 2000)])
    refused(voxloom, tmp_path / "c.h5", "c.h5")


def test_real_hdf5(voxloom, shared, tmp_path):
    path = shared / "data" / "em" / "vnc_mitochondria.h5"
    with h5py.File(path) as file:
        names = []
        file.visititems(lambda name, item: names.append(name) if isinstance(item, h5py.Dataset) else None)
        for name in names:
            if file[name].ndim < 3:
                continue
            assert np.array_equal(read_through(voxloom, f"{path}:{name}", tmp_path), expected_of(file[name][...]))
            facts = json.loads(voxloom("inspect", f"{path}:{name}", "--json").stdout)
            assert facts["shape"] == list(file[name].shape) and facts["format"] == "hdf5"


# ---- NRRD ----

@pytest.mark.parametrize("dtype", TYPES + ["int64", "uint64"])
@pytest.mark.parametrize("endian", ["little", "big"])
def test_nrrd(voxloom, draw, tmp_path, dtype, endian):
    for encoding in ("raw", "gzip"):
        array = random_array(draw, dtype)
        name = draw.choice(["a.nrrd", "a.nhdr"])
        header = {"encoding": encoding, "endian": endian, "spacings": [0.5, 1.5, 2.5]}
        nrrd.write(str(tmp_path / name), array.astype(np.dtype(dtype).newbyteorder({"little": "<", "big": ">"}[endian])),
                   header, index_order="C")
        print(name, array.shape, encoding)
        assert np.array_equal(read_through(voxloom, tmp_path / name, tmp_path), expected_of(array))
        facts = json.loads(voxloom("inspect", tmp_path / name, "--json").stdout)
        assert facts["spacing"] == [2.5, 1.5, 0.5] and facts["codec"] == {"raw": "none", "gzip": "gzip"}[encoding]


@pytest.mark.parametrize("space, signs", [("left-posterior-superior", (-1, -1, 1)),
                                          ("right-anterior-superior", (1, 1, 1)), ("LAS", (-1, 1, 1))])
def test_nrrd_directions_become_an_affine(voxloom, draw, tmp_path, space, signs):
    generator = np.random.default_rng(draw.randrange(2**32))
    rotation, _ = np.linalg.qr(generator.normal(size=(3, 3)))
    spacing, origin = generator.uniform(0.5, 3, 3), generator.uniform(-50, 50, 3)
    directions = rotation * spacing[:, None]  # one row an axis x, y, z
    array = random_array(draw, "int16")
    nrrd.write(str(tmp_path / "a.nrrd"), array, {"space": space, "space directions": directions, "space origin": origin},
               index_order="C")
    facts = json.loads(voxloom("inspect", tmp_path / "a.nrrd", "--json").stdout)
    expected = np.column_stack([directions.T, origin]) * np.array(signs)[:, None]
    assert np.allclose(facts["affine"], expected) and np.allclose(facts["spacing"], spacing[::-1])
    voxloom("convert", tmp_path / "a.nrrd", tmp_path / "b.nrrd")
    assert np.allclose(json.loads(voxloom("inspect", tmp_path / "b.nrrd", "--json").stdout)["affine"], expected)


def test_nrrd_channels_first_or_last(voxloom, draw, tmp_path):
    array = random_array(draw, "uint8", (3, 5, 6, 7))  # channel, z, y, x
    nrrd.write(str(tmp_path / "slow.nrrd"), array, {"kinds": ["domain", "domain", "domain", "list"]}, index_order="C")
    nrrd.write(str(tmp_path / "fast.nrrd"), np.moveaxis(array, 0, -1),
               {"kinds": ["vector", "domain", "domain", "domain"]}, index_order="C")
    for name in ("slow.nrrd", "fast.nrrd"):
        assert np.array_equal(read_through(voxloom, tmp_path / name, tmp_path), array)


@pytest.mark.parametrize("codec", ["gzip", "none"])
@pytest.mark.parametrize("suffix", [".nrrd", ".nhdr"])
def test_pynrrd_reads_ours(voxloom, draw, tmp_path, codec, suffix):
    for _ in range(3):
        array = random_array(draw, draw.choice(TYPES), random_shape(draw))
        np.save(tmp_path / "a.npy", array)
        voxloom("convert", tmp_path / "a.npy", tmp_path / f"b{suffix}", "--codec", codec)
        got, _ = nrrd.read(str(tmp_path / f"b{suffix}"), index_order="C")
        assert got.dtype == array.dtype and np.array_equal(got, array)


def test_damaged_nrrd_is_one_sentence(voxloom, draw, tmp_path):
    array = random_array(draw, "int16", (10, 11, 12))
    for encoding in ("raw", "gzip"):
        nrrd.write(str(tmp_path / "a.nrrd"), array, {"encoding": encoding})
        content = (tmp_path / "a.nrrd").read_bytes()
        for kept in (60, content.index(b"\n\n") + 1, len(content) // 2, len(content) - 1):
            (tmp_path / "b.nrrd").write_bytes(content[:kept])
            refused(voxloom, tmp_path / "b.nrrd", "b.nrrd")
    nrrd.write(str(tmp_path / "c.nhdr"), array, {"encoding": "raw"})
    next(path for path in tmp_path.glob("c.*") if path.suffix != ".nhdr").unlink()
    refused(voxloom, tmp_path / "c.nhdr", "c.")


# ---- PNG stacks ----

@pytest.mark.parametrize("dtype", ["uint8", "uint16"])
def test_png_stack_in_natural_order(voxloom, draw, tmp_path, dtype):
    array = random_array(draw, dtype, (12, draw.randrange(1, 60), draw.randrange(1, 60)))
    (tmp_path / "stack").mkdir()
    for z, image in enumerate(array):
        imageio.imwrite(tmp_path / "stack" / f"slice{z}.png", image)
    assert np.array_equal(read_through(voxloom, tmp_path / "stack", tmp_path), array)
    facts = json.loads(voxloom("inspect", tmp_path / "stack", "--json").stdout)
    assert facts["format"] == "png_stack" and facts["shape"] == list(array.shape) and facts["dtype"] == dtype


def write_one_bit(path, mask):
    from PIL import Image
    Image.fromarray(mask).convert("1").save(path)


def test_png_masks_of_one_bit_alone_and_mixed(voxloom, draw, tmp_path):
    masks = random_array(draw, "bool", (6, 13, 21))
    for folder, eight_bits in {"pure": [], "mixed": [1, 4]}.items():
        (tmp_path / folder).mkdir()
        for z, mask in enumerate(masks):
            if z in eight_bits:
                imageio.imwrite(tmp_path / folder / f"{z}.png", mask.astype("uint8") * 255)
            else:
                write_one_bit(tmp_path / folder / f"{z}.png", mask)
    assert np.array_equal(read_through(voxloom, tmp_path / "pure", tmp_path), masks.astype("uint8"))
    mixed = np.stack([np.asarray(imageio.imread(tmp_path / "mixed" / f"{z}.png", mode="L")) for z in range(6)])
    assert np.array_equal(read_through(voxloom, tmp_path / "mixed", tmp_path), mixed)
    assert set(np.unique(mixed)) == {0, 255}


@pytest.mark.parametrize("dtype", ["uint8", "uint16"])
def test_imageio_reads_our_slices(voxloom, draw, tmp_path, dtype):
    array = random_array(draw, dtype, (11, draw.randrange(1, 50), draw.randrange(1, 50)))
    np.save(tmp_path / "a.npy", array)
    voxloom("convert", tmp_path / "a.npy", tmp_path / "b.pngs")
    got = [np.asarray(imageio.imread(path)) for path in sorted((tmp_path / "b.pngs").iterdir())]
    assert np.array_equal(np.stack(got), array)


def test_damaged_png_stack_is_one_sentence(voxloom, draw, tmp_path):
    array = random_array(draw, "uint8", (3, 40, 40))
    np.save(tmp_path / "a.npy", array)
    voxloom("convert", tmp_path / "a.npy", tmp_path / "b.pngs")
    content = (tmp_path / "b.pngs/1.png").read_bytes()
    for damaged in (content[:20], content[:len(content) // 2], content[:-4],
                    content[:60] + bytes([content[60] ^ 1]) + content[61:]):
        (tmp_path / "b.pngs/1.png").write_bytes(damaged)
        refused(voxloom, tmp_path / "b.pngs", "1.png")
    imageio.imwrite(tmp_path / "b.pngs/1.png", np.zeros((40, 41), "uint8"))
    refused(voxloom, tmp_path / "b.pngs", "1.png", "40x41")


# ---- OpenKBP ----

def patient_by_pandas(folder):
    def sparse(name):
        return pandas.read_csv(folder / f"{name}.csv", index_col=0)
    volumes = {}
    for path in folder.glob("*.csv"):
        if path.stem == "voxel_dimensions":
            continue
        volume, table = np.zeros(128**3, "float64"), sparse(path.stem)
        np.put(volume, table.index, 1 if table["data"].isnull().all() else table["data"].to_numpy())
        volumes[path.stem] = volume.reshape(128, 128, 128)
    return volumes


PATIENTS = ["train-pats/pt_4", "train-pats/pt_6", "validation-pats/pt_201"]  # PTV70 alone; CT above 4095; all structures


@pytest.fixture(scope="module")
def patients(tmp_path_factory):
    """The archive takes 10 s to unpack: once for all."""
    archive = SHARED / "data" / "openkbp" / "openkbp-40train-8validation.tar.xz"
    if not archive.exists():
        pytest.skip("the folder of real data is not here")
    folder = tmp_path_factory.mktemp("openkbp")
    with tarfile.open(archive) as files:
        for member in files:
            if any(f"{patient}/" in member.name for patient in PATIENTS):
                files.extract(member, folder, filter="data")
    return folder


@pytest.mark.parametrize("patient", PATIENTS)
def test_real_openkbp_patients_equal_pandas(voxloom, patients, tmp_path, patient):
    folder = next(path for path in patients.rglob(pathlib.Path(patient).name) if path.is_dir())
    truth = patient_by_pandas(folder)
    structures = ["Brainstem", "SpinalCord", "RightParotid", "LeftParotid", "Esophagus", "Larynx", "Mandible", "PTV56",
                  "PTV63", "PTV70"]
    masks = np.stack([truth.get(name, np.zeros((128,) * 3)) for name in structures])
    assert np.array_equal(read_through(voxloom, f"{folder}:ct", tmp_path), truth["ct"].astype("int16"))
    assert np.array_equal(read_through(voxloom, f"{folder}:dose", tmp_path), truth["dose"].astype("float32"))
    assert np.array_equal(read_through(voxloom, f"{folder}:masks", tmp_path), masks.astype("uint8"))
    assert np.array_equal(read_through(voxloom, folder, tmp_path),
                          np.concatenate([truth["ct"][None], masks]).astype("int16"))
    assert np.array_equal(read_through(voxloom, f"{folder}:possible_dose_mask", tmp_path), truth["possible_dose_mask"])
    facts = json.loads(voxloom("inspect", f"{folder}:PTV70", "--json").stdout)
    assert facts["labels"]["1"] == truth["PTV70"].sum() and facts["format"] == "openkbp"
    assert facts["spacing"] == pytest.approx(np.loadtxt(folder / "voxel_dimensions.csv").tolist())
    (folder / "ct.csv").unlink()
    refused(voxloom, folder, "ct.csv")
