"""Long runs that a commit does not wait for: `make soak`."""
import json
import shutil

import pytest
from recipes import RECIPE


def copy(source, target):
    (shutil.copytree if source.is_dir() else shutil.copy)(source, target)


@pytest.mark.parametrize("format, suffix", [("tiff", "tif"), ("zarr", "zarr")])
def test_ten_thousand_patches_stay_within_the_cache(voxloom, tmp_path, format, suffix):
    """200 volumes of 256^3, LZW TIFF or blosc Zarr: 3.1 GiB decoded and as much for labels, with data.cache_gb=2."""
    distinct, count = 8, 200
    voxloom("synth", "scroll", tmp_path, "--count", distinct, "--size", 256, "--format", format)
    for source, kind in (("train_images", "images"), ("train_labels", "labels")):
        (tmp_path / source).rename(tmp_path / kind)
        for number in range(distinct, count):
            copy(tmp_path / kind / f"scroll_{number % distinct:03d}.{suffix}",
                 tmp_path / kind / f"scroll_{number:03d}.{suffix}")
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(RECIPE.format(root=tmp_path, patch="64, 128, 128", batch=2, suffix=suffix))
    out = voxloom("bench", "data", recipe, "data.cache_gb=2", "--batches", 5000, "--threads", 2, "--json", timeout=3600)
    result = json.loads(out.stdout)[0]
    print({key: value for key, value in result.items() if not isinstance(value, list)})
    assert result["rss_peak_gib"] <= 2.5
    assert result["rss_end_gib"] <= result["rss_quarter_gib"] + 0.1
