"""HDF5, against h5py."""
import json
import struct

import h5py
import numpy as np
import pytest

from random_volumes import TYPES, expected_of, random_array, random_chunks, random_shape, read_through, refused


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


def test_a_file_with_other_datasets_is_not_replaced(voxloom, draw, tmp_path):
    arrays = {name: random_array(draw, np.uint8, (3, 4, 5)) for name in ("raw", "label")}
    with h5py.File(tmp_path / "data.h5", "w") as file:
        for name, array in arrays.items():
            file[name] = array
    refused = voxloom("convert", f"{tmp_path}/data.h5:raw", tmp_path / "data.h5", check=False)
    assert refused.returncode == 1 and "it holds label, which would be lost" in refused.stderr, refused.stderr
    with h5py.File(tmp_path / "data.h5") as file:
        assert all(np.array_equal(file[name][...], array) for name, array in arrays.items())
    voxloom("convert", f"{tmp_path}/data.h5:raw", tmp_path / "one.h5")
    voxloom("convert", f"{tmp_path}/data.h5:label", tmp_path / "one.h5")  # the same dataset, written anew
    assert np.array_equal(read_through(voxloom, tmp_path / "one.h5", tmp_path), arrays["label"])


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


def test_names_of_datasets_are_shown_without_what_a_terminal_obeys(voxloom, tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for name in ("first", "red\x1b[31m"):
            file.create_dataset(name, data=np.zeros((4, 4, 4), "uint8"))
    message = refused(voxloom, tmp_path / "a.h5", "first", "red?[31m", "choose one")
    assert "\x1b" not in message


@pytest.mark.parametrize("libver, mark", [("earliest", b"TREE\1"), (("v110", "v110"), b"FAHD")])
def test_an_index_of_chunks_that_cannot_be_read_is_no_fill_value(voxloom, draw, tmp_path, libver, mark):
    with h5py.File(tmp_path / "a.h5", "w", libver=libver) as file:
        file.create_dataset("d", data=random_array(draw, "uint16", (32, 32, 32)), chunks=(16, 16, 16))
    content = (tmp_path / "a.h5").read_bytes()
    (tmp_path / "a.h5").write_bytes(content.replace(mark, b"X" + mark[1:]))
    refused(voxloom, f"{tmp_path}/a.h5:d", "a.h5", "chunk")


def test_an_index_of_chunks_far_outside_the_file_is_one_sentence(voxloom, tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("d", data=np.ones((24, 8, 8), "uint8"), chunks=(8, 8, 8))
    content = (tmp_path / "a.h5").read_bytes()
    pointer = struct.pack("<Q", content.index(b"TREE\1"))
    (tmp_path / "a.h5").write_bytes(content.replace(pointer, struct.pack("<Q", 2**63 + 8)))
    refused(voxloom, f"{tmp_path}/a.h5:d", "index of its chunks")


def test_values_in_the_header_that_are_fewer_than_the_shape_says_are_refused(voxloom, tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        creation = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        creation.set_layout(h5py.h5d.COMPACT)
        space = h5py.h5s.create_simple((4, 5, 6))
        data = h5py.h5d.create(file.id, b"conv3d", h5py.h5t.NATIVE_FLOAT, space, creation)
        data.write(h5py.h5s.ALL, h5py.h5s.ALL, np.ones((4, 5, 6), "float32"))
    assert np.array_equal(read_through(voxloom, tmp_path / "a.h5", tmp_path), np.ones((4, 5, 6), "float32"))
    content = (tmp_path / "a.h5").read_bytes()
    shape = struct.pack("<QQQ", 4, 5, 6)
    assert shape in content
    (tmp_path / "a.h5").write_bytes(content.replace(shape, struct.pack("<QQQ", 400, 500, 6)))
    refused(voxloom, tmp_path / "a.h5", "a.h5", "stored")
    result = voxloom("weights", "show", tmp_path / "a.h5", check=False)
    assert result.returncode == 1 and "stored" in result.stderr


def test_an_index_of_chunks_in_circles_is_refused(voxloom, tmp_path):
    """Forty levels of a tree, each pointing eight times to the next: 8^40 ways down in 17 kB."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("d", data=np.ones((24, 8, 8), "uint8"), chunks=(8, 8, 8))
    content = bytearray((tmp_path / "a.h5").read_bytes())
    pointer, root = content.index(struct.pack("<Q", content.index(b"TREE\1"))), len(content)
    for level in range(40, -1, -1):
        entry = bytes(40) + struct.pack("<Q", len(content) + 24 + 8 * 48)
        node = b"TREE\1" + bytes([level]) + struct.pack("<H", 8 if level else 0) + b"\xff" * 16 + entry * 8
        content += node
    content[pointer:pointer + 8] = struct.pack("<Q", root)
    content[40:48] = struct.pack("<Q", len(content))  # the end of the file
    (tmp_path / "a.h5").write_bytes(content)
    refused(voxloom, f"{tmp_path}/a.h5:d", "a.h5", "circles")


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
