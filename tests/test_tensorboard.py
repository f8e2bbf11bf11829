"""Event files are read back by TensorBoard itself. The files come from the unit test of the writer."""
import io
import os
import pathlib
import subprocess

import numpy as np
import pytest

event_accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent


def report_test():
    """The unit test's program, in the build folder that was built last."""
    named = os.environ.get("VOX_REPORT_TEST")
    if named:
        return pathlib.Path(named)
    found = [*REPOSITORY.glob("build/src/vox_report_test"), *REPOSITORY.glob("build/*/src/vox_report_test")]
    if not found:
        pytest.skip("vox_report_test is not built")
    return max(found, key=lambda path: path.stat().st_mtime)


@pytest.fixture(scope="module")
def events(tmp_path_factory):
    folder = tmp_path_factory.mktemp("events")
    subprocess.run([report_test(), "--gtest_filter=TensorBoard.FilesForTheReaderOfTensorBoard"], check=True,
                   capture_output=True, env={**os.environ, "VOX_TEST_OUTPUT": str(folder)})

    def read(name):
        accumulator = event_accumulator.EventAccumulator(str(folder / name), size_guidance={
            "scalars": 0, "images": 0, "histograms": 0, "tensors": 0})
        accumulator.Reload()
        return accumulator

    return read


def test_scalars_come_back_with_their_steps(events):
    scalars = events("whole").Scalars("train/loss")
    assert [event.step for event in scalars] == list(range(1, 21))
    assert np.allclose([event.value for event in scalars], 1 / np.arange(1, 21), rtol=1e-6)
    assert events("whole").Scalars("train/large_step")[0].step == 2**40
    assert all(event.wall_time > 1e9 for event in scalars)


def test_images_are_png_files_with_the_right_pixels(events):
    pillow = pytest.importorskip("PIL.Image")
    whole = events("whole")
    gray = whole.Images("slices/gray")[0]
    assert (gray.width, gray.height) == (6, 4)
    pixels = np.array(pillow.open(io.BytesIO(gray.encoded_image_string)))
    assert np.array_equal(pixels, (10 * np.arange(24)).reshape(4, 6))
    strip = whole.Images("slices/s-1")[0]
    colours = np.array(pillow.open(io.BytesIO(strip.encoded_image_string)))
    assert colours.shape == (4, strip.width, 3)
    assert np.array_equal(colours[:, :6, 0], pixels), "the first panel is the input"
    changed = np.argwhere((colours[:, 10:16] != colours[:, :6]).any(axis=2))
    assert changed.tolist() == [[0, 5]], "the second panel shows the label"
    changed = np.argwhere((colours[:, 20:26] != colours[:, :6]).any(axis=2))
    assert changed.tolist() == [[1, 0]], "the third panel shows the prediction"


def test_histogram_counts_every_finite_value(events):
    values = np.arange(-50, 51) * 0.25
    histogram = events("whole").Histograms("gradients/conv")[0].histogram_value
    assert (histogram.min, histogram.max, histogram.num) == (values.min(), values.max(), len(values))
    assert np.isclose(histogram.sum, values.sum()) and np.isclose(histogram.sum_squares, (values**2).sum())
    limits, counts = np.array(histogram.bucket_limit), np.array(histogram.bucket)
    assert (np.diff(limits) > 0).all()
    assert np.array_equal(np.cumsum(counts), [(values <= limit).sum() for limit in limits])


def test_text_comes_back(events):
    whole = events("whole")
    assert "config/text_summary" in whole.Tags()["tensors"]
    tensor = whole.Tensors("config/text_summary")[0].tensor_proto
    assert tensor.string_val[0].decode().startswith("| key | value |")
    assert whole.SummaryMetadata("config/text_summary").plugin_data.plugin_name == "text"


def test_files_cut_back_are_still_valid(events):
    cut = events("cut")
    assert [event.step for event in cut.Scalars("train/loss")] == list(range(1, 8))
    assert sorted(cut.Tags()["scalars"]) == ["train/epoch", "train/loss", "val/dice"]
    assert cut.Tags()["images"] == ["val/s-1"]
    assert "config/text_summary" in cut.Tags()["tensors"]


def test_what_ends_an_open_epoch_is_cut_with_it(events):
    cut = events("open")
    steps = {tag: [event.step for event in cut.Scalars(tag)] for tag in cut.Tags()["scalars"]}
    assert steps == {"train/loss": list(range(1, 11)), "val/dice": [5], "train/epoch": [5]}
    assert [event.step for event in cut.Images("val/s-1")] == [5]
    assert [event.step for event in cut.Images("slices/s-1")] == [10] and cut.Histograms("gradients/conv")[0].step == 10
