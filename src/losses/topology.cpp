// Persistent homology as a loss (Hu et al. 2019): the components, tunnels and cavities of the probability map, as its
// level falls from 1 to 0. The label says how many there should be; the most persistent ones are drawn towards a birth
// at 1 and a death at 0, all others towards their own diagonal. Gradients go to the two voxels of each feature, which
// come from the very map they are applied to.
#include <torch/torch.h>

#include <algorithm>
#include <numeric>

#include "losses/entry.h"
#include "ops/volume_ops.h"

namespace vox {
namespace {

constexpr PersistenceOptions kFalling{.level = Level::kFalling, .construction = Construction::kVertices};

class Topology : public Loss {
 public:
  struct Options {
    std::vector<int64_t> dimensions{0, 2};
    bool background = false;
    void describe(Visitor& v) {
      v.field("dimensions", dimensions,
              {.meaning = "0 components, 1 tunnels (costly), 2 cavities", .min = 0, .max = 2, .min_items = 1});
      v.field("background", background, {.meaning = "Channel 0 counts too, where there are several"});
    }
  };
  Topology(const Options& options, const LossContext&) : options_(options) {}

  at::Tensor compute(const LossInput& input) const override {
    const auto [p, t] = regions_of(input, options_.background);
    at::Tensor sum = p.sum() * 0;
    for (const int64_t dimension : options_.dimensions) sum = sum + one_dimension(p, t, static_cast<int>(dimension));
    return sum / static_cast<double>(p.size(0) * p.size(1));
  }
  bool batch_wise(bool) const override { return false; }

 private:
  static std::vector<int64_t> features_wanted(const at::Tensor& target, int dimension) {
    std::vector<int64_t> wanted(static_cast<size_t>(target.size(0) * target.size(1)), 0);
    for (const int64_t volume : ops::persistence_places((target > 0.5).to(at::kFloat), dimension, kFalling).volume)
      ++wanted[static_cast<size_t>(volume)];
    // An empty label has one component that is born at 0 and never dies: none at all.
    if (dimension == 0) {
      const at::Tensor any = (target > 0.5).flatten(2).any(2).flatten().to(at::kCPU);
      for (size_t i = 0; i < wanted.size(); ++i)
        if (!any[static_cast<int64_t>(i)].item<bool>()) wanted[i] = 0;
    }
    return wanted;
  }

  static at::Tensor index_of(const std::vector<int64_t>& places, const at::Device& device) {
    return at::tensor(places, at::kLong).to(device);
  }

  static at::Tensor one_dimension(const at::Tensor& p, const at::Tensor& t, int dimension) {
    const ops::PairPlaces pairs = ops::persistence_places(p, dimension, kFalling);
    std::vector<int64_t> wanted = features_wanted(t, dimension);
    const at::Tensor flat = p.flatten();
    const at::Tensor host = flat.detach().to(at::kCPU, at::kFloat).contiguous();
    const float* const values = host.const_data_ptr<float>();
    const auto death_value = [&](size_t i) { return pairs.death[i] < 0 ? 0.0f : values[pairs.death[i]]; };
    std::vector<size_t> order(pairs.birth.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      return values[pairs.birth[a]] - death_value(a) > values[pairs.birth[b]] - death_value(b);
    });
    std::vector<int64_t> to_one, to_zero, born, died;
    for (const size_t i : order) {
      int64_t& left = wanted[static_cast<size_t>(pairs.volume[i])];
      const bool kept = left > 0;
      if (kept) --left;
      if (kept) {
        to_one.push_back(pairs.birth[i]);
        if (pairs.death[i] >= 0) to_zero.push_back(pairs.death[i]);
      } else if (pairs.death[i] >= 0) {
        born.push_back(pairs.birth[i]);
        died.push_back(pairs.death[i]);
      } else {
        to_zero.push_back(pairs.birth[i]);  // a component that never dies and should not be
      }
    }
    const auto take = [&](const std::vector<int64_t>& places) {
      return flat.index_select(0, index_of(places, flat.device()));
    };
    return (1 - take(to_one)).square().sum() + take(to_zero).square().sum() + (take(born) - take(died)).square().sum();
  }

  Options options_;
};

}  // namespace

LossEntry topology_entry() {
  LossEntry entry = loss_entry<Topology>("topology", "Persistent components, tunnels and cavities against the label's");
  entry.default_every = 16;
  return entry;
}

}  // namespace vox
