#include "report/plot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/text.h"
#include "report/html_text.h"

namespace vox {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(Plot, TicksAreRoundAndInside) {
  EXPECT_THAT(round_ticks(0, 10, 5), ElementsAre(0, 2, 4, 6, 8, 10));
  EXPECT_THAT(round_ticks(101, 349, 5), ElementsAre(150, 200, 250, 300));
  for (const double low : {-3.7, 0.0, 1e-6, 12345.0}) {
    for (const double width : {1e-7, 0.3, 7.0, 1e6}) {
      const std::vector<double> ticks = round_ticks(low, low + width, 5);
      EXPECT_GE(ticks.size(), 3u) << low << ' ' << width;
      EXPECT_LE(ticks.size(), 9u) << low << ' ' << width;
      EXPECT_GE(ticks.front(), low - 1e-8 * width);
      EXPECT_LE(ticks.back(), low + width * (1 + 1e-8));
    }
  }
}

TEST(Plot, ThinningKeepsExtremesAndOrder) {
  Points points;
  for (int i = 0; i < 50'000; ++i) points.emplace_back(i, std::sin(i * 0.01));
  points[31'234].second = 99;
  points[7].second = -99;
  const Points kept = decimate(points);
  EXPECT_LE(kept.size(), 2000u);
  EXPECT_TRUE(std::is_sorted(kept.begin(), kept.end(), [](auto a, auto b) { return a.first < b.first; }));
  EXPECT_NE(std::find(kept.begin(), kept.end(), std::pair(31234.0, 99.0)), kept.end());
  EXPECT_NE(std::find(kept.begin(), kept.end(), std::pair(7.0, -99.0)), kept.end());
}

TEST(Plot, RunningMeanOfALineIsTheLineInside) {
  Points points;
  for (int i = 0; i < 100; ++i) points.emplace_back(i, 2.0 * i);
  points[50].second = std::numeric_limits<double>::quiet_NaN();
  const Points means = running_mean(points, 11);
  for (const int i : {5, 30, 80, 94}) EXPECT_NEAR(means[static_cast<size_t>(i)].second, 2.0 * i, 1e-9);
  EXPECT_TRUE(std::isnan(means[50].second));
  EXPECT_TRUE(std::isfinite(means[52].second));
}

TEST(Plot, ValuesThatAreNotFiniteAreGapsAndCounted) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::string svg =
      render_plot({.id = "x", .title = "a<b", .curves = {{"c", {{1, 1}, {2, nan}, {3, 3}, {4, 4}}}}});
  EXPECT_THAT(svg, HasSubstr("1 value not finite"));
  EXPECT_THAT(svg, HasSubstr("a&lt;b"));
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
  const size_t path = svg.find("d=\"M");
  EXPECT_EQ(std::count(svg.begin() + static_cast<std::ptrdiff_t>(path), svg.end(), 'M'), 2) << "two strokes";
}

TEST(Plot, NothingToShowIsNothing) {
  EXPECT_EQ(render_plot({.id = "x", .title = "t", .curves = {{"c", {}}}}), "");
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(render_plot({.id = "x", .title = "t", .curves = {{"c", {{1, nan}}}}}), HasSubstr("1 value not finite"));
  EXPECT_THAT(render_plot({.id = "x", .title = "t", .curves = {{"c", {{1, 5}}}}}), Not(HasSubstr("nan")));
}

TEST(HtmlText, Base64MatchesTheStandardsExamples) {  // RFC 4648, section 10
  EXPECT_EQ(base64(""), "");
  EXPECT_EQ(base64("f"), "Zg==");
  EXPECT_EQ(base64("fo"), "Zm8=");
  EXPECT_EQ(base64("foo"), "Zm9v");
  EXPECT_EQ(base64("foob"), "Zm9vYg==");
  EXPECT_EQ(base64("fooba"), "Zm9vYmE=");
  EXPECT_EQ(base64("foobar"), "Zm9vYmFy");
}

}  // namespace
}  // namespace vox
