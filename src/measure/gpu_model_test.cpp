// The model against steps that were measured on an H200 (bench/workloads/measured.csv), and against what must hold on
// any GPU.
#include "measure/gpu_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "config/config.h"
#include "measure/gpu_predict.h"

namespace vox {
namespace {

using testing::HasSubstr;

const fs::path kRepository = fs::path(__FILE__).parent_path().parent_path().parent_path();

ops::LayerRecord conv_layer(int64_t in, int64_t out, int64_t size, int64_t samples = 2) {
  const int64_t voxels = samples * size * size * size;
  return {.name = "conv",
          .output = {samples, out, size, size, size},
          .parameters = 27 * in * out,
          .macs = 27.0 * static_cast<double>(in * out * voxels),
          .input = in * voxels,
          .in_channels = in,
          .taps = 27,
          .own_kernel = in >= 32 && in <= 128 && out >= 32 && out <= 128,
          .has_norm = true};
}

GpuWork two_layers(int64_t samples = 2) {
  return {.layers = {conv_layer(1, 32, 64, samples), conv_layer(32, 32, 64, samples)},
          .loss_bytes = 1e6 * static_cast<double>(samples),
          .optimizer_bytes = 1e6,
          .format = WorkFormat::kBFloat};
}

double step_on(const std::string& gpu, const GpuWork& work) {
  return predict_step(work, find_gpu(gpu)).step_ms();
}

TEST(GpuModel, NoLayerIsFasterThanItsBytesAndOperationsAllow) {
  GpuWork work = two_layers();
  work.layers = {conv_layer(64, 64, 64), conv_layer(64, 64, 64)};
  for (const GpuSpec& gpu : known_gpus()) {
    const double passes = 5,
                 flops = passes * 2 * work.layers[0].macs;  // two layers, the first without an input gradient
    EXPECT_GT(step_on(gpu.name, work), flops / (gpu.half_tflops * 1e9)) << gpu.name;
    const double bytes = passes * 2.0 * static_cast<double>(2 * work.layers[0].input);
    EXPECT_GT(step_on(gpu.name, work), bytes / (gpu.bandwidth_gb_s * 1e6)) << gpu.name;
  }
}

TEST(GpuModel, MoreWorkTakesLonger) {
  for (const GpuSpec& gpu : known_gpus()) {
    double before = 0;
    for (const int64_t samples : {1, 2, 4, 8}) {
      const double ms = step_on(gpu.name, two_layers(samples));
      EXPECT_GT(ms, before) << gpu.name;
      EXPECT_LT(ms, samples == 1 ? INFINITY : 2.001 * before)
          << gpu.name << ": twice the batch, at most twice the time";
      before = ms;
    }
    GpuWork accumulated = two_layers(), again = two_layers();
    accumulated.accumulation = 3;
    again.recomputes = true;
    EXPECT_GT(step_on(gpu.name, accumulated), 2.5 * step_on(gpu.name, two_layers()));
    EXPECT_GT(step_on(gpu.name, again), step_on(gpu.name, two_layers()));
  }
}

TEST(GpuModel, GpusStandInTheOrderOfTheirDataSheets) {
  const GpuWork work = two_layers();
  EXPECT_LT(step_on("h200", work), step_on("h100", work));
  EXPECT_LT(step_on("h100", work), step_on("a100-80", work));
  EXPECT_LT(step_on("a100-80", work), step_on("a100-40", work));
  EXPECT_LT(step_on("a100-40", work), step_on("rtx3090", work));
  EXPECT_LT(step_on("rtx4090", work), step_on("rtx3090", work));
}

TEST(GpuModel, OwnKernelsAreOfHopperAndOfBFloat16) {
  const auto own = [](const char* gpu, const GpuWork& work) {
    return predict_step(work, find_gpu(gpu)).layers.back().own_kernel;
  };
  GpuWork work = two_layers();
  EXPECT_TRUE(own("h200", work) && own("h100", work));
  EXPECT_FALSE(own("a100-80", work) || own("rtx4090", work));
  work.own_kernels = false;
  EXPECT_FALSE(own("h200", work));
  EXPECT_GT(step_on("h200", work), 1.3 * step_on("h200", two_layers()));
  work = two_layers();
  work.format = WorkFormat::kHalf;
  EXPECT_FALSE(own("h200", work));
  work.format = WorkFormat::kFloat;
  EXPECT_GT(step_on("h200", work), 2 * step_on("h200", two_layers()));
}

TEST(GpuModel, AnUnknownGpuIsRefusedWithThoseThereAre) {
  try {
    find_gpu("gtx1080");
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("gtx1080"));
    for (const GpuSpec& gpu : known_gpus()) EXPECT_THAT(error.what(), HasSubstr(gpu.name));
  }
}

std::vector<std::string> cells_of(const std::string& row) {  // quotes keep commas together
  std::vector<std::string> cells{""};
  bool quoted = false;
  for (const char letter : row) {
    if (letter == '"')
      quoted = !quoted;
    else if (letter == ',' && !quoted)
      cells.emplace_back();
    else
      cells.back() += letter;
  }
  return cells;
}

TEST(GpuPredict, StepsMeasuredOnAGpuAreMetWithinAQuarter) {
  const std::vector<std::string> rows = split(read_file(kRepository / "bench/workloads/measured.csv"), '\n');
  int compared = 0;
  for (size_t i = 1; i < rows.size(); ++i) {
    const std::vector<std::string> row = cells_of(rows[i]);
    if (row.size() < 4) continue;
    const std::vector<std::string> options = row[1].empty() ? std::vector<std::string>{} : split(row[1], ' ');
    const RecipePrediction recipe =
        predict_recipe(load_config(kRepository / row[0], options).options, {find_gpu(row[2])});
    const double measured = std::stod(row[3]), modelled = recipe.gpus.front().step.step_ms();
    EXPECT_NEAR(modelled / measured, 1, 0.25) << row[0] << " " << row[1] << ": " << modelled << " ms";
    ++compared;
  }
  EXPECT_GE(compared, 6);
}

TEST(GpuPredict, TheLargestBatchFitsAndOneMoreDoesNot) {
  Config config = load_config(kRepository / "bench/workloads/vesuvius_b2.yaml", {"model.filters=16,32,64"});
  const auto on = [&](int64_t batch, const char* gpu) {
    config.options.data.batch_size = batch;
    return predict_recipe(config.options, {find_gpu(gpu)}).gpus.front();
  };
  for (const char* gpu : {"rtx3090", "h200"}) {
    const GpuPrediction first = on(2, gpu);
    EXPECT_TRUE(on(first.largest_batch, gpu).fits);
    EXPECT_FALSE(on(first.largest_batch + 1, gpu).fits);
    EXPECT_EQ(on(7, gpu).largest_batch, first.largest_batch);
  }
  EXPECT_GT(on(2, "h200").largest_batch, on(2, "rtx3090").largest_batch);
}

}  // namespace
}  // namespace vox
