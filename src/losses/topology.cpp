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
    // Pairs are found on CPU threads: each map goes there once, and only the places of critical voxels come back.
    const Maps maps{p.detach().to(at::kCPU, at::kFloat).contiguous(),
                    (t > 0.5).to(at::kCPU).to(at::kFloat).contiguous()};
    Critical critical;
    const auto find = options_.form == "persistence" ? counted : matched;
    for (const int64_t dimension : options_.dimensions) find(critical, maps, static_cast<int>(dimension));
    return value_of(critical, p) / static_cast<double>(p.size(0) * p.size(1));
  }
  bool batch_wise(bool) const override { return false; }

 private:
  struct Maps {  // on the CPU
    at::Tensor prediction, label;
  };
  // Voxels that are drawn to a value, and pairs of voxels that are drawn together, by their places in the map.
  struct Critical {
    std::vector<int64_t> alone, born, died;
    std::vector<double> wanted, weight;  // of those alone
    void draw(int64_t place, double to, double by = 1) {
      alone.push_back(place);
      wanted.push_back(to);
      weight.push_back(by);
    }
    void draw_together(int64_t birth, int64_t death) {
      born.push_back(birth);
      died.push_back(death);
    }
  };

  static at::Tensor value_of(const Critical& critical, const at::Tensor& p) {
    std::vector<int64_t> places = critical.alone;
    places.insert(places.end(), critical.born.begin(), critical.born.end());
    places.insert(places.end(), critical.died.begin(), critical.died.end());
    std::vector<double> numbers = critical.wanted;
    numbers.insert(numbers.end(), critical.weight.begin(), critical.weight.end());
    const int64_t alone = static_cast<int64_t>(critical.alone.size()),
                  pairs = static_cast<int64_t>(critical.born.size());
    const at::Tensor values = p.flatten().index_select(0, at::tensor(places, at::kLong).to(p.device()));
    const at::Tensor given = at::tensor(numbers, at::kDouble).to(p.device(), p.scalar_type());
    const at::Tensor apart = values.narrow(0, 0, alone) - given.narrow(0, 0, alone);
    const at::Tensor long_lived = values.narrow(0, alone, pairs) - values.narrow(0, alone + pairs, pairs);
    return (apart.square() * given.narrow(0, alone, alone)).sum() + long_lived.square().sum();
  }

  static std::vector<int64_t> features_wanted(const at::Tensor& label, int dimension) {
    std::vector<int64_t> wanted(static_cast<size_t>(label.size(0) * label.size(1)), 0);
    for (const int64_t volume : ops::persistence_places(label, dimension, kFalling).volume)
      ++wanted[static_cast<size_t>(volume)];
    // An empty label has one component that is born at 0 and never dies: none at all.
    if (dimension == 0) {
      const at::Tensor any = (label > 0.5).flatten(2).any(2).flatten();
      for (size_t i = 0; i < wanted.size(); ++i)
        if (!any[static_cast<int64_t>(i)].item<bool>()) wanted[i] = 0;
    }
    return wanted;
  }

  static void matched(Critical& critical, const Maps& maps, int dimension) {
    const ops::MatchedPlaces found = ops::matched_places(maps.prediction, maps.label, dimension, Level::kFalling);
    const float* const label = maps.label.const_data_ptr<float>();
    std::vector<bool> has_partner(found.first.birth.size());
    for (const auto& [a, b] : found.matches) {
      has_partner[a] = true;
      critical.draw(found.first.birth[a], label[found.second.birth[b]], 2);
      if (found.first.death[a] < 0 || found.second.death[b] < 0) continue;
      critical.draw(found.first.death[a], label[found.second.death[b]], 2);
    }
    for (size_t i = 0; i < has_partner.size(); ++i) {
      if (has_partner[i]) continue;
      if (found.first.death[i] >= 0)
        critical.draw_together(found.first.birth[i], found.first.death[i]);
      else
        critical.draw(found.first.birth[i], 0);
    }
  }

  static void counted(Critical& critical, const Maps& maps, int dimension) {
    const ops::PairPlaces pairs = ops::persistence_places(maps.prediction, dimension, kFalling);
    std::vector<int64_t> wanted = features_wanted(maps.label, dimension);
    const float* const values = maps.prediction.const_data_ptr<float>();
    const auto persistence = [&](size_t i) {
      return values[pairs.birth[i]] - (pairs.death[i] < 0 ? 0.0f : values[pairs.death[i]]);
    };
    std::vector<size_t> order(pairs.birth.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return persistence(a) > persistence(b); });
    for (const size_t i : order) {
      int64_t& left = wanted[static_cast<size_t>(pairs.volume[i])];
      const bool kept = left > 0, dies = pairs.death[i] >= 0;
      if (kept) {
        --left;
        critical.draw(pairs.birth[i], 1);
        if (dies) critical.draw(pairs.death[i], 0);
      } else if (dies) {
        critical.draw_together(pairs.birth[i], pairs.death[i]);
      } else {
        critical.draw(pairs.birth[i], 0);  // a component that never dies and should not be
      }
    }
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
