#include "report/metrics_csv.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "base/error.h"
#include "base/file.h"
#include "report/test_folder.h"

namespace vox {
namespace {

MetricsRow row_at(int64_t step, double loss) {
  MetricsRow row{.step = step, .epoch = (step + 9) / 10, .split = "train", .values = {}};
  row.set("loss", loss);
  return row;
}

std::string first_line(const std::filesystem::path& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return line;
}

TEST(MetricsCsv, HasTheColumnsOfTheContractInOrder) {
  const TestFolder folder;
  const auto file = folder.path() / "metrics.csv";
  const MetricsWriter writer(file, {"dice", "loss.bce", "loss.dice"});
  EXPECT_EQ(first_line(file),
            "step,epoch,split,loss,loss.bce,loss.dice,lr,grad_norm,step_ms,data_wait_ms,samples_per_s,gpu_util,"
            "gpu_mem_gb,gpu_temp_c,gpu_power_w,host_rss_gb,dice");
}

TEST(MetricsCsv, RowsAreThereAtOnceAndAbsentValuesAreEmpty) {
  const TestFolder folder;
  const auto file = folder.path() / "metrics.csv";
  MetricsWriter writer(file);
  MetricsRow row = row_at(3, 0.1);
  row.set("lr", std::optional<double>());
  row.set("grad_norm", std::nan(""));
  writer.write(row);
  EXPECT_NE(read_file(file).find("\n3,1,train,0.1,,nan,,,,,,,,\n"), std::string::npos) << read_file(file);
  const MetricsTable table = read_metrics(file);
  ASSERT_EQ(table.rows.size(), 1u);
  EXPECT_EQ(table.rows[0].get("loss"), 0.1);
  EXPECT_EQ(table.rows[0].get("lr"), std::nullopt);
  EXPECT_TRUE(std::isnan(*table.rows[0].get("grad_norm")));
}

TEST(MetricsCsv, ANewColumnIsAddedToTheRowsBefore) {
  const TestFolder folder;
  const auto file = folder.path() / "metrics.csv";
  MetricsWriter writer(file);
  writer.write(row_at(1, 1));
  MetricsRow validation{.step = 2, .epoch = 1, .split = "val", .values = {}};
  validation.set("dice", 0.5);
  validation.set("loss.bce", 0.25);
  writer.write(validation);
  writer.write(row_at(3, 3));
  EXPECT_TRUE(first_line(file).starts_with("step,epoch,split,loss,loss.bce,lr,"));
  EXPECT_TRUE(first_line(file).ends_with(",host_rss_gb,dice"));
  const MetricsTable table = read_metrics(file);
  ASSERT_EQ(table.rows.size(), 3u);
  EXPECT_EQ(table.rows[0].get("loss"), 1);
  EXPECT_EQ(table.rows[1].get("dice"), 0.5);
  EXPECT_EQ(table.rows[1].split, "val");
  EXPECT_EQ(table.rows[2].get("dice"), std::nullopt);
}

TEST(MetricsCsv, IsCutBackToAStepAndGoesOn) {
  const TestFolder folder;
  const auto file = folder.path() / "metrics.csv";
  {
    MetricsWriter writer(file);
    for (int64_t step = 1; step <= 10; ++step) writer.write(row_at(step, static_cast<double>(step)));
  }
  MetricsWriter writer(file);
  writer.cut_after(6);
  writer.write(row_at(7, 70));
  const MetricsTable table = read_metrics(file);
  ASSERT_EQ(table.rows.size(), 7u);
  EXPECT_EQ(table.rows[5].get("loss"), 6);
  EXPECT_EQ(table.rows[6].get("loss"), 70);
}

TEST(MetricsCsv, AValidationThatWillComeAgainIsCutToo) {
  const TestFolder folder;
  MetricsWriter writer(folder.path() / "metrics.csv");
  for (int64_t step = 5; step <= 15; step += 5) {
    writer.write(row_at(step, 1));
    writer.write({step, 1, "val", {}});
  }
  const auto rows = [&] { return read_metrics(folder.path() / "metrics.csv").rows; };
  writer.cut_after(10);
  ASSERT_EQ(rows().size(), 4u);
  writer.cut_after(10, /*open=*/true);
  ASSERT_EQ(rows().size(), 3u);
  EXPECT_EQ(rows().back().step, 10);
  EXPECT_EQ(rows().back().split, "train");
}

TEST(MetricsCsv, HalfALineOfAKilledProcessIsDropped) {
  const TestFolder folder;
  const auto file = folder.path() / "metrics.csv";
  { MetricsWriter(file).write(row_at(1, 1)); }
  std::ofstream(file, std::ios::app) << "2,1,tra";
  EXPECT_EQ(read_metrics(file).rows.size(), 1u);
  MetricsWriter(file).write(row_at(2, 2));
  EXPECT_EQ(read_metrics(file).rows.size(), 2u);
}

TEST(MetricsCsv, ADamagedFileIsNamedWithItsLine) {
  const TestFolder folder;
  const auto file = folder.path() / "metrics.csv";
  write_file(file, "step,epoch,split,loss\n1,1,train,x\n");
  try {
    read_metrics(file);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("metrics.csv:2: \"x\""), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace vox
