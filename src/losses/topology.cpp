// Persistent homology as a loss (Hu et al. 2019): the components, tunnels and cavities of the probability map, as its
// level falls from 1 to 0. form persistence: the label says how many there should be; the most persistent ones are
// drawn towards a birth at 1 and a death at 0, all others towards their own diagonal. form betti_matching (Stucki et
// al. 2023): features of the map that are features of the label, at the same place, are drawn to the label's birth and
// death instead. Gradients go to the two voxels of each feature, which come from the very map they are applied to.
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
    std::string form = "persistence";
    std::vector<int64_t> dimensions{0, 2};
    bool background = false;
    void describe(Visitor& v) {
      v.field("form", form,
              {.meaning = "Count the features, or match them with those of the label",
               .choices = {"persistence", "betti_matching"}});
      v.field("dimensions", dimensions,
              {.meaning = "0 components, 1 tunnels (costly), 2 cavities", .min = 0, .max = 2, .min_items = 1});
      v.field("background", background, {.meaning = "Channel 0 counts too, where there are several"});
    }
  };
  Topology(const Options& options, const LossContext&) : options_(options) {}

  at::Tensor compute(const LossInput& input) const override {
    const auto [p, t] = regions_of(input, options_.background);
    at::Tensor sum = p.sum() * 0;
    const auto part = options_.form == "persistence" ? counted : matched;
    for (const int64_t dimension : options_.dimensions) sum = sum + part(p, t, static_cast<int>(dimension));
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

  static at::Tensor take(const at::Tensor& flat, const std::vector<int64_t>& places) {
    return flat.index_select(0, at::tensor(places, at::kLong).to(flat.device()));
  }

  static at::Tensor matched(const at::Tensor& p, const at::Tensor& t, int dimension) {
    const ops::MatchedPlaces found = ops::matched_places(p, (t > 0.5).to(at::kFloat), dimension, Level::kFalling);
    const at::Tensor flat_p = p.flatten(), flat_t = (t > 0.5).to(p.scalar_type()).flatten();
    std::vector<bool> has_partner(found.first.birth.size());
    std::vector<int64_t> of_p, of_t, born, died, never;
    for (const auto& [a, b] : found.matches) {
      has_partner[a] = true;
      of_p.push_back(found.first.birth[a]);
      of_t.push_back(found.second.birth[b]);
      if (found.first.death[a] < 0 || found.second.death[b] < 0) continue;
      of_p.push_back(found.first.death[a]);
      of_t.push_back(found.second.death[b]);
    }
    for (size_t i = 0; i < has_partner.size(); ++i) {
      if (has_partner[i]) continue;
      const bool dies = found.first.death[i] >= 0;
      (dies ? born : never).push_back(found.first.birth[i]);
      if (dies) died.push_back(found.first.death[i]);
    }
    return 2 * (take(flat_p, of_p) - take(flat_t, of_t)).square().sum() +
           (take(flat_p, born) - take(flat_p, died)).square().sum() + take(flat_p, never).square().sum();
  }

  static at::Tensor counted(const at::Tensor& p, const at::Tensor& t, int dimension) {
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
    return (1 - take(flat, to_one)).square().sum() + take(flat, to_zero).square().sum() +
           (take(flat, born) - take(flat, died)).square().sum();
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
