"""Zarr 2 and 3 and OME-Zarr, against zarr-python."""
import copy
import json
import shutil

import h5py
import nibabel
import numcodecs
import numpy as np
import pytest
import zarr

from random_volumes import TYPES, expected_of, random_array, random_chunks, random_shape, read_through, refused


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


@pytest.mark.parametrize("version", [2, 3])
def test_arrays_of_groups_inside_a_group_are_found(voxloom, draw, tmp_path, version):
    group = zarr.create_group(tmp_path / "g.zarr", zarr_format=version)
    volumes, arrays = group.create_group("volumes"), [random_array(draw, "uint8") for _ in range(3)]
    volumes.create_array("raw", data=arrays[0])
    assert np.array_equal(read_through(voxloom, tmp_path / "g.zarr", tmp_path), arrays[0])  # the only one
    volumes.create_group("labels").create_array("ids", data=arrays[1])
    refused(voxloom, tmp_path / "g.zarr", "volumes/labels/ids", "volumes/raw")
    refused(voxloom, f"{tmp_path}/g.zarr:volumes", "volumes/labels/ids", "volumes/raw")
    assert np.array_equal(read_through(voxloom, f"{tmp_path}/g.zarr:volumes/labels/ids", tmp_path), arrays[1])
    group.create_array("top", data=arrays[2])
    assert np.array_equal(read_through(voxloom, tmp_path / "g.zarr", tmp_path), arrays[2])  # the only one of its own


def test_an_unfinished_array_beside_another_is_none(voxloom, draw, tmp_path):
    group, array = zarr.create_group(tmp_path / "g.zarr", zarr_format=2), random_array(draw, "uint8")
    group.create_array("raw", data=array)
    shutil.copytree(tmp_path / "g.zarr" / "raw", tmp_path / "g.zarr" / ".labels.123.0.part")  # a conversion was killed
    assert np.array_equal(read_through(voxloom, tmp_path / "g.zarr", tmp_path), array)


@pytest.mark.parametrize("size", [[0, 1, 1], [1, -2, 1], ["1", 1, 1]])
def test_a_size_of_voxels_that_cannot_be_says_nothing(voxloom, draw, tmp_path, size):
    array = zarr.create_array(tmp_path / "a.zarr", data=random_array(draw, "uint8"), zarr_format=2)
    array.attrs["voxel_size_mm"] = [2, 3, 4]
    assert json.loads(voxloom("inspect", tmp_path / "a.zarr", "--json").stdout)["spacing"] == [2, 3, 4]
    array.attrs["voxel_size_mm"] = size
    assert json.loads(voxloom("inspect", tmp_path / "a.zarr", "--json").stdout)["spacing"] is None


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


def test_volumes_deeper_than_a_chunk_are_written_whole(voxloom, draw, tmp_path):
    array = random_array(draw, "int16", (100, 5, 4))
    nibabel.save(nibabel.Nifti1Image(array.T, np.eye(4)), tmp_path / "a.nii.gz")
    for name in ("a.zarr", "a.h5"):
        voxloom("convert", tmp_path / "a.nii.gz", tmp_path / name)
    assert np.array_equal(zarr.open_array(tmp_path / "a.zarr", mode="r")[...], array)
    with h5py.File(tmp_path / "a.h5") as file:
        assert np.array_equal(file["volume"][...], array)


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


@pytest.mark.parametrize("odd", [7, [1, 2], True, "x"])
def test_zarr_settings_of_another_kind_are_one_sentence(voxloom, tmp_path, odd):
    zarr.create_array(tmp_path / "a.zarr", shape=(4, 4, 4), dtype="uint8", chunks=(2, 2, 2), shards=(4, 4, 4))
    meta = json.loads((tmp_path / "a.zarr/zarr.json").read_text())
    for change in (lambda m: m["codecs"][0].update(configuration=odd),
                   lambda m: m["codecs"][0]["configuration"]["codecs"][0].update(configuration=odd),
                   lambda m: m["codecs"][0]["configuration"]["index_codecs"][0].update(configuration=odd),
                   lambda m: m["chunk_key_encoding"].update(configuration=odd)):
        changed = copy.deepcopy(meta)
        change(changed)
        (tmp_path / "a.zarr/zarr.json").write_text(json.dumps(changed))
        result = voxloom("inspect", tmp_path / "a.zarr", check=False)
        assert result.returncode == 1 and "configuration" in result.stderr and "exception" not in result.stderr


@pytest.mark.parametrize("version, name, key", [(3, "zarr.json", "codecs"), (2, ".zarray", "filters")])
def test_zarr_metadata_that_nests_without_end_is_one_sentence(voxloom, tmp_path, version, name, key):
    zarr.create_array(tmp_path / "a.zarr", shape=(4, 4, 4), dtype="uint8", chunks=(2, 2, 2), zarr_format=version)
    meta = json.loads((tmp_path / "a.zarr" / name).read_text()) | {key: "here"}
    (tmp_path / "a.zarr" / name).write_text(json.dumps(meta).replace('"here"', "[" * 300000 + "]" * 300000))
    refused(voxloom, tmp_path / "a.zarr", "a.zarr")


def test_a_zarr_larger_than_the_memory_is_named(voxloom, tmp_path):
    zarr.create_array(tmp_path / "a.zarr", shape=(2**17,) * 3, dtype="uint8", chunks=(64, 64, 64))
    result = voxloom("convert", tmp_path / "a.zarr", tmp_path / "b.npy", check=False)
    assert result.returncode == 3 and "a.zarr" in result.stderr and "131072x131072x131072" in result.stderr


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
