"""Bad files: a clear sentence that names the file, exit status 1, nothing written over, at once and without memory."""
import gzip
import os
import resource
import signal
import struct
import time

import nibabel
import numpy as np
import pytest
import tifffile

SUFFIXES = [".npy", ".npz", ".nii", ".nii.gz", ".tif"]


def write(path, array):
    name = path.name
    if name.endswith(".npy"):
        np.save(path, array)
    elif name.endswith(".npz"):
        np.savez_compressed(path, a=array)
    elif name.endswith(".tif"):
        tifffile.imwrite(path, array, compression="lzw", photometric="minisblack")
    else:
        nibabel.save(nibabel.Nifti1Image(array.T, np.eye(4)), path)


def refused(voxloom, path, tmp_path, **options):
    """Runs convert and inspect --json on a bad file and checks what every failure has in common."""
    target = tmp_path / "kept.npy"
    target.write_bytes(b"what was here before")
    for arguments in (("convert", path, target), ("inspect", path, "--json")):
        result = voxloom(*arguments, check=False, **options)
        assert result.returncode == 1, result.stderr
        assert result.stdout == ""
        assert str(path) in result.stderr
        assert len(result.stderr.strip().splitlines()) == 1, result.stderr
    assert target.read_bytes() == b"what was here before"
    target.unlink()
    return result.stderr


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_missing(voxloom, tmp_path, suffix):
    assert "no such file" in refused(voxloom, tmp_path / f"nothing{suffix}", tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_unreadable(voxloom, tmp_path):
    path = tmp_path / "a.npy"
    write(path, np.zeros((2, 3, 4), "uint8"))
    path.chmod(0)
    assert "Permission denied" in refused(voxloom, path, tmp_path)


@pytest.mark.parametrize("suffix", SUFFIXES + [".unknown"])
def test_empty(voxloom, tmp_path, suffix):
    path = tmp_path / f"a{suffix}"
    path.write_bytes(b"")
    assert "empty" in refused(voxloom, path, tmp_path)


def test_folder_and_unknown_kind(voxloom, tmp_path):
    folder = tmp_path / "folder.nii"
    folder.mkdir()
    assert "folder" in refused(voxloom, folder, tmp_path)
    text = tmp_path / "notes.txt"
    text.write_text("no volume")
    assert ".tif" in refused(voxloom, text, tmp_path)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_another_kind_of_content(voxloom, tmp_path, suffix):
    path = tmp_path / f"a{suffix}"
    path.write_text("this is text whatever its name says, and long enough for any header. " * 20)
    refused(voxloom, path, tmp_path)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_truncated_anywhere(voxloom, draw, tmp_path, suffix):
    path = tmp_path / f"a{suffix}"
    generator = np.random.default_rng(draw.randrange(2**32))
    write(path, generator.integers(0, 1000, (6, 20, 30)).astype("uint16"))
    complete = path.read_bytes()
    for _ in range(4):
        path.write_bytes(complete[:draw.randrange(1, len(complete))])
        refused(voxloom, path, tmp_path)


def nifti1_that_lies(dims):
    header = nibabel.Nifti1Header()
    header.set_data_dtype("float32")
    block = bytearray(header.binaryblock)
    struct.pack_into("<8h", block, 40, 3, *dims, 1, 1, 1, 1)
    struct.pack_into("<f", block, 108, 352)
    block[344:348] = b"n+1\0"
    return bytes(block) + bytes(52)


def nifti2_that_lies(dims):
    header = nibabel.Nifti2Header()
    header.set_data_dtype("float32")
    block = bytearray(header.binaryblock)
    struct.pack_into("<8q", block, 16, 3, *dims, 1, 1, 1, 1)
    struct.pack_into("<q", block, 168, 544)
    return bytes(block) + bytes(60)


def npy_that_lies(dims):
    text = "{'descr': '<f4', 'fortran_order': False, 'shape': (%d, %d, %d), }" % dims
    text += " " * (117 - len(text)) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode() + bytes(270)


def tiff_that_lies(dims):
    tags = [(256, 4, 1, dims[2]), (257, 4, 1, dims[1]), (258, 3, 1, 32), (259, 3, 1, 1), (262, 3, 1, 1),
            (273, 4, 1, 200), (277, 3, 1, 1), (278, 4, 1, dims[1]), (279, 4, 1, 200), (339, 3, 1, 3)]
    ifd = struct.pack("<H", len(tags)) + b"".join(
        struct.pack("<HHII", tag, kind, count, value)  # little-endian: a short lies at the front of its field
        for tag, kind, count, value in tags) + struct.pack("<I", 0)
    return (b"II*\0" + struct.pack("<I", 8) + ifd).ljust(400, b"\0")


LIES = {"big.npy": npy_that_lies((100000,) * 3), "huge.npy": npy_that_lies((2**62,) * 3),
        "wraps.npy": npy_that_lies((2**32, 2**32, 1)), "zero.npy": npy_that_lies((0, 5, 5)),
        "big.nii": nifti1_that_lies((32767,) * 3), "negative.nii": nifti1_that_lies((-5, 5, 5)),
        "big2.nii": nifti2_that_lies((100000,) * 3), "huge2.nii": nifti2_that_lies((2**62,) * 3),
        "big.nii.gz": gzip.compress(nifti2_that_lies((100000,) * 3)),
        "big.tif": tiff_that_lies((1, 100000, 100000)), "huge.tif": tiff_that_lies((1, 2**32 - 1, 2**32 - 1))}


def limit_memory():
    resource.setrlimit(resource.RLIMIT_DATA, (512 << 20, 512 << 20))


@pytest.mark.parametrize("name", LIES)
def test_header_that_lies_about_its_size(voxloom, tmp_path, name):
    """A small file that claims terabytes is refused at once, by a program that may not have half a gigabyte."""
    path = tmp_path / name
    path.write_bytes(LIES[name])
    start = time.monotonic()
    message = refused(voxloom, path, tmp_path, preexec_fn=limit_memory)
    assert "memory" not in message
    assert time.monotonic() - start < 10


@pytest.mark.parametrize("name, content", [
    ("key.npy", npy_that_lies((2, 3, 4)).replace(b"fortran", b"\x1b[2Jran")),
    ("type.npy", npy_that_lies((2, 3, 4)).replace(b"'<f4'", b"'<\x1b4'")),
    ("line.nrrd", b"NRRD0004\n\x1b[2J\n\n"), ("type.nrrd", b"NRRD0004\ntype: \x1b[2J\ndimension: 3\n\n"),
    ("sizes.nrrd", b"NRRD0004\ntype: uchar\ndimension: 3\nsizes: 1 1 \x1b[2J\n\n")])
def test_what_a_file_holds_does_not_reach_the_terminal_as_it_is(voxloom, tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    assert "\x1b" not in refused(voxloom, tmp_path / name, tmp_path)


@pytest.mark.parametrize("suffix", [".npz", ".nii.gz", ".tif"])
def test_a_chunk_that_does_not_decode(voxloom, draw, tmp_path, suffix):
    path = tmp_path / f"a{suffix}"
    generator = np.random.default_rng(draw.randrange(2**32))
    write(path, generator.integers(0, 4, (6, 40, 50)).astype("uint8"))
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    content[middle:middle + 64] = generator.integers(0, 256, 64).astype("uint8").tobytes()
    path.write_bytes(content)
    if suffix == ".tif":  # TIFF has no checksum: damage that still decodes cannot be noticed
        directory = tifffile.TiffFile(path)
        offset, count = directory.pages[0].dataoffsets[0], directory.pages[0].databytecounts[0]
        content[offset:offset + count] = b"\xff" * count
        path.write_bytes(content)
    refused(voxloom, path, tmp_path)


def test_dataset_of_a_format_without_datasets(voxloom, tmp_path):
    path = tmp_path / "a.npy"
    write(path, np.zeros((2, 3, 4), "uint8"))
    result = voxloom("inspect", f"{path}:raw", check=False)
    assert result.returncode == 1 and "raw" in result.stderr and result.stdout == ""


def test_writing_where_one_may_not(voxloom, tmp_path):
    path = tmp_path / "a.npy"
    write(path, np.zeros((2, 3, 4), "uint8"))
    (tmp_path / "file").write_text("in the way")
    result = voxloom("convert", path, tmp_path / "file" / "b.npy", check=False)
    assert result.returncode == 1 and "file" in result.stderr
    (tmp_path / "folder.npy").mkdir()
    result = voxloom("convert", path, tmp_path / "folder.npy", check=False)
    assert result.returncode == 1 and "folder.npy" in result.stderr
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.npy", "file", "folder.npy"]


def test_a_write_that_fails_leaves_nothing(voxloom, tmp_path):
    path = tmp_path / "a.npy"
    np.save(path, np.zeros((64, 256, 256), "uint8"))

    def small_files():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))

    result = voxloom("convert", path, tmp_path / "b.npy", check=False, preexec_fn=small_files)
    assert result.returncode in (1, 3) and "b.npy" in result.stderr
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.npy"]
