"""The gather against scipy's resampling, through the whole program."""
import json

import numpy
import pytest
import scipy.ndimage


@pytest.mark.parametrize("dtype", ["uint8", "int16", "float32"])
@pytest.mark.parametrize("volume_size", [24, 70])  # smaller than the patch: padding; larger: mostly the interior
def test_rotation_and_scale_match_scipy(voxloom, draw, tmp_path, dtype, volume_size):
    seed = draw.randrange(2**31)
    source = numpy.random.default_rng(seed)
    volume = source.integers(0, 200, (volume_size,) * 3).astype(dtype)
    numpy.save(tmp_path / "volume.npy", volume)
    said = voxloom("bench", "gather", "--volume", tmp_path / "volume.npy", "--size", 40, "--seed", seed, "--repeats", 1,
                   "--output", tmp_path / "patch.npy", "--json").stdout
    place = json.loads(said)[0]["map"]
    expected = scipy.ndimage.affine_transform(
        volume.astype(numpy.float64), numpy.array(place["matrix"]), numpy.add(place["origin"], place["offset"]),
        output_shape=(40,) * 3, order=1, mode="grid-constant", cval=0)
    patch = numpy.load(tmp_path / "patch.npy")
    assert patch.std() > 10
    # Positions below 64 are rounded to 2^-18 of a voxel at worst, three times, and neighbours differ by up to 200.
    numpy.testing.assert_allclose(patch, expected, atol=200 * 3 * 3 * 2**-18)
