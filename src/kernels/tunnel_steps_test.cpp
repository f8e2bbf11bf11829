// The steps of the GPU, taken one by one on the host and in several orders, against kernels/persistence.h.
#include "kernels/tunnel_steps.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/random.h"
#include "kernels/persistence_parts.h"
#include "kernels/tunnel_columns.h"
#include "kernels/union_find.h"

namespace vox {
namespace {

class StepsOnHost {
 public:
  StepsOnHost(const OrderedGrid& grid, Random& random)
      : places_(static_cast<uint32_t>(grid.places())),
        random_(random),
        links_(3 * places_, links::kNothing),
        up_(places_),
        work_{{static_cast<uint32_t>(grid.slice), static_cast<uint32_t>(grid.row)},
              grid.keys.data(),
              links_.data(),
              up_.data()} {
    left_.places = grid.places();
  }

  TunnelColumns run(int rounds, int most_hops) {
    const auto add_column = [&](uint64_t column) { left_.columns.push_back(column); };
    for (const uint32_t place : shuffled(places_)) tunnels::take_star_apart(work_, add_column, place);
    for (uint32_t& way : up_)
      while (up_[way] != way) way = up_[way];
    drop_edges_that_join();
    for (int round = 0; round < rounds; ++round)
      for (const uint32_t edge : shuffled(3 * places_)) tunnels::settle(work_, edge, most_hops);
    for (uint32_t edge = 0; edge < 3 * places_; ++edge) tunnels::give_up_waiting(work_, edge);
    left_.rows = rows();
    std::sort(left_.columns.begin(), left_.columns.end());
    number();
    return left_;
  }

 private:
  std::vector<uint32_t> shuffled(uint32_t count) {
    std::vector<uint32_t> items(count);
    std::iota(items.begin(), items.end(), 0u);
    for (uint32_t i = count; i > 1; --i) std::swap(items[i - 1], items[static_cast<size_t>(random_.below(i))]);
    return items;
  }
  std::vector<uint64_t> rows() const {
    std::vector<uint64_t> found;
    for (uint32_t edge = 0; edge < 3 * places_; ++edge)
      if (tunnels::is_row(edge, links_[edge])) found.push_back(tunnels::row_of(work_, edge));
    std::sort(found.begin(), found.end());
    return found;
  }
  // Kruskal's algorithm, where each voxel is joined with the neighbour that its own edge leads to.
  void drop_edges_that_join() {
    UnionFind joined(places_);
    for (uint32_t place = 0; place < places_; ++place) {
      if (work_.keys[place] == tunnels::kBorderKey) continue;
      const uint32_t edges = tunnels::earlier_neighbours(work_, place) & star::kEdgeVoxels;
      if (edges != 0) joined.unite(place, work_.cells.neighbour(place, star::first_direction(edges)));
    }
    for (const uint64_t row : rows()) {
      const uint32_t edge = tunnels::edge_of(work_.cells, row), low = edge / 3;
      const uint32_t high = low + work_.cells.step(static_cast<int>(edge % 3));
      if (joined.find(low) == joined.find(high)) continue;
      joined.unite(low, high);
      links_[edge] = links::kNothing;
    }
  }
  void number() {
    left_.rest.resize(3 * left_.rows.size());
    left_.edges.resize(4 * left_.columns.size());
    left_.cubes.resize(2 * left_.columns.size());
    for (size_t i = 0; i < left_.rows.size(); ++i) tunnels::write_rest(work_, left_.rows[i], left_.rest.data() + 3 * i);
    for (size_t i = 0; i < left_.columns.size(); ++i)
      tunnels::write_column(work_, left_.columns[i], left_.edges.data() + 4 * i, left_.cubes.data() + 2 * i);
    for (size_t i = 0; i < left_.rows.size(); ++i) tunnels::number_row(work_, left_.rows[i], static_cast<uint32_t>(i));
    for (uint32_t& edge : left_.edges) tunnels::put_number(work_, &edge);
    for (size_t i = 0; i < left_.rest.size(); ++i)
      if (left_.rows[i / 3] & tunnels::kPairedRow) tunnels::put_number(work_, &left_.rest[i]);
  }

  const uint32_t places_;
  Random& random_;
  std::vector<uint32_t> links_, up_;
  tunnels::Work work_;
  TunnelColumns left_;
};

std::vector<float> steps_test_map(int content, const Extent3& extent, Random& random) {
  std::vector<float> values;
  for (int64_t i = 0; i < extent.voxels(); ++i) {
    const float noise = random.uniform();
    const double wave = std::sin(static_cast<double>(i) * 0.7) + std::sin(static_cast<double>(i % extent.x) * 0.9);
    values.push_back(content == 0   ? noise
                     : content == 1 ? std::floor(noise * 4)
                     : content == 2 ? (noise < 0.4f ? 1.0f : 0.0f)
                     : content == 3 ? static_cast<float>(wave)
                                    : 0.0f);
  }
  return values;
}

TEST(TunnelSteps, LeadToThePairsOfTheCpu) {
  size_t seen = 0;
  for (uint32_t sample = 0; sample < 120; ++sample) {
    Random random(82, sample, 0);
    Extent3 extent;
    for (int axis = 0; axis < 3; ++axis) extent[axis] = random.chance(0.1) ? 1 : 1 + random.below(11);
    const std::vector<float> values = steps_test_map(static_cast<int>(sample % 5), extent, random);
    const Level level = sample % 2 == 0 ? Level::kRising : Level::kFalling;
    const OrderedGrid grid = grid_of(values.data(), extent, level);
    std::vector<PersistencePair> found;
    const int rounds = static_cast<int>(random.below(12)), most_hops = 1 + static_cast<int>(random.below(4));
    for (const PlacePair& pair : tunnel_pairs_of(StepsOnHost(grid, random).run(rounds, most_hops)))
      found.push_back({grid.voxel(pair.birth), grid.voxel(pair.death)});
    ASSERT_EQ(found, persistence_pairs_cpu(values.data(), extent, 1, {.level = level})) << sample << " " << extent;
    seen += found.size();
  }
  EXPECT_GT(seen, 1000u);  // else the cases show nothing
}

}  // namespace
}  // namespace vox
