"""Long runs that a commit does not wait for: `make soak`."""
import json
import shutil

from recipes import RECIPE


def test_ten_thousand_patches_stay_within_the_cache(voxloom, tmp_path):
    """200 volumes of 256^3 as LZW TIFF, 3.1 GiB decoded and as much again for labels, with data.cache_gb=2."""
    distinct, count = 8, 200
    voxloom("synth", "scroll", tmp_path, "--count", distinct, "--size", 256)
    for source, kind in (("train_images", "images"), ("train_labels", "labels")):
        (tmp_path / source).rename(tmp_path / kind)
        for number in range(distinct, count):
            shutil.copy(tmp_path / kind / f"scroll_{number % distinct:03d}.tif",
                        tmp_path / kind / f"scroll_{number:03d}.tif")
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(RECIPE.format(root=tmp_path, patch="64, 128, 128", batch=2, suffix="tif"))
    out = voxloom("bench", "data", recipe, "data.cache_gb=2", "--batches", 5000, "--threads", 2, "--json", timeout=3600)
    result = json.loads(out.stdout)[0]
    print({key: value for key, value in result.items() if not isinstance(value, list)})
    assert result["rss_peak_gib"] <= 2.5
    assert result["rss_end_gib"] <= result["rss_quarter_gib"] + 0.1
