// Persistent homology as a loss (Hu et al. 2019): the components, tunnels and cavities of the probability map, as its
// level falls from 1 to 0. form persistence: the label says how many there should be; the most persistent ones are
// drawn towards a birth at 1 and a death at 0, all others towards their own diagonal. form betti_matching (Stucki et
// al. 2023): features of the map that are features of the label, at the same place, are drawn to the label's birth and
// death instead. Gradients go to the two voxels of each feature, which come from the very map they are applied to.
//
// With a delay of k the pairs of batch t are sought on threads from step t on, and at step t + k that batch goes
// through the network once more: the value and its gradient are exactly those of the second prediction at the voxels
// that were critical in the first, k updates of the weights before. Nothing depends on how long the threads take.
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/torch.h>

#include <algorithm>
#include <future>

#include "base/error.h"
#include "base/span.h"
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
    int64_t delay = 0;
    void describe(Visitor& v) {
      v.field("form", form,
              {.meaning = "Count the features, or match them with those of the label",
               .choices = {"persistence", "betti_matching"}});
      v.field("dimensions", dimensions,
              {.meaning = "0 components, 1 tunnels (costly), 2 cavities", .min = 0, .max = 2, .min_items = 1});
      v.field("background", background, {.meaning = "Channel 0 counts too, where there are several"});
      v.field("delay", delay,
              {.meaning = "Seek the pairs of a batch on threads and apply them so many steps later to a second forward "
                          "pass of it: the value and gradient of the new prediction at voxels critical in the old one. "
                          "0 waits for the pairs; below `every`",
               .unit = "steps",
               .min = 0,
               .max = 1e6});
    }
  };
  Topology(const Options& options, const LossContext&) : options_(options) {}

  at::Tensor compute(const LossInput& input) const override {
    const auto [p, t] = regions_of(input, options_.background);
    const Maps maps(p.detach().to(at::kFloat), (t > 0.5).to(at::kFloat));
    const auto start = Clock::now();
    const Critical critical = found_in(maps, options_);
    waited_ += seconds_since(start);
    return value_of(critical, p);
  }
  bool batch_wise(bool) const override { return false; }
  bool reads_back() const override { return true; }
  int64_t delay() const override { return options_.delay; }
  std::optional<double> take_wait() const override { return std::exchange(waited_, 0.0); }

  std::unique_ptr<Findings> look_at(const LossInput& input) const override {
    const auto [p, t] = regions_of(input, options_.background);
    const HostCopies copies({p.detach().to(at::kFloat), (t > 0.5).to(at::kFloat)});
    std::future<Critical> found = std::async(std::launch::async, [copies, options = options_] {
      const at::NoGradGuard no_grad;
      const Span span("topology_pairs");
      const Maps maps(copies.wait()[0], copies.wait()[1]);
      // Where the network overflowed the step changes nothing, and there is nothing to come back to.
      return maps.prediction.isfinite().all().item<bool>() ? found_in(maps, options) : Critical{};
    });
    return std::make_unique<Pairs>(*this, std::move(found));
  }

  std::unique_ptr<Findings> restored(const std::vector<at::Tensor>& state) const override {
    std::promise<Critical> known;
    known.set_value(Critical(state));
    return std::make_unique<Pairs>(*this, known.get_future());
  }

 private:
  struct Maps {
    Maps(const at::Tensor& p, const at::Tensor& t)
        : prediction(p.contiguous()), label(t.contiguous()), labelled((t > 0.5).flatten(2).any(2).flatten().cpu()) {}
    Maps on_host() const { return {prediction.cpu(), label.cpu()}; }

    at::Tensor prediction, label;
    at::Tensor labelled;  // whether the label of each volume has anything; on the host, which waited for all of them
  };
  // Voxels that are drawn to a value, and pairs of voxels that are drawn together, by their places in the map.
  struct Critical {
    int64_t voxels = 0;  // of the map
    std::vector<int64_t> alone, born, died;
    std::vector<double> wanted, weight;  // of those alone
    Critical() = default;
    explicit Critical(const std::vector<at::Tensor>& state);
    std::vector<at::Tensor> state() const;
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

  // Maps on their way to the host; from a GPU they come through pinned memory, and whoever needs them waits.
  class HostCopies {
   public:
    explicit HostCopies(const std::vector<at::Tensor>& maps) {
      for (const at::Tensor& map : maps) {
        const bool pinned = map.is_cuda();
        at::Tensor copy = at::empty(map.sizes(), at::TensorOptions(at::kFloat).pinned_memory(pinned));
        copies_.push_back(copy.copy_(map, /*non_blocking=*/pinned));
      }
      if (!maps.front().is_cuda()) return;
      const c10::impl::VirtualGuardImpl device(at::kCUDA);
      arrived_ = std::make_shared<c10::Event>(at::kCUDA);
      arrived_->record(device.getStream(maps.front().device()));
    }
    const std::vector<at::Tensor>& wait() const {
      if (arrived_) arrived_->synchronize();
      return copies_;
    }

   private:
    std::vector<at::Tensor> copies_;
    std::shared_ptr<c10::Event> arrived_;
  };

  class Pairs : public Findings {
   public:
    Pairs(const Topology& owner, std::future<Critical> found) : owner_(owner), found_(std::move(found)) {}

    at::Tensor value(const LossInput& input) override {
      const auto start = Clock::now();
      const Critical critical = found_.get();
      owner_.waited_ += seconds_since(start);
      const auto [p, t] = regions_of(input, owner_.options_.background);
      // Another size of the map: the run goes on, by force, with other patches than it was stopped with.
      return critical.voxels == p.numel() ? value_of(critical, p) : p.sum() * 0;
    }
    std::vector<at::Tensor> state() override {
      Critical critical = found_.get();
      std::vector<at::Tensor> tensors = critical.state();
      std::promise<Critical> known;
      known.set_value(std::move(critical));
      found_ = known.get_future();
      return tensors;
    }

   private:
    const Topology& owner_;
    std::future<Critical> found_;
  };

  static Critical found_in(const Maps& maps, const Options& options) {
    Critical critical;
    critical.voxels = maps.prediction.numel();
    const bool counts = options.form == "persistence";
    const auto find = counts ? counted : matched;
    std::optional<Maps> on_host;  // for what no GPU finds: maps go there once
    for (const int64_t of : options.dimensions) {
      const int dimension = static_cast<int>(of);
      const bool here = maps.prediction.is_cpu() || (counts && ops::has_persistence(maps.prediction, dimension));
      if (!here && !on_host) on_host = maps.on_host();
      find(critical, here ? maps : *on_host, dimension);
    }
    return critical;
  }

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
    const at::Tensor sum = (apart.square() * given.narrow(0, alone, alone)).sum() + long_lived.square().sum();
    return sum / static_cast<double>(p.size(0) * p.size(1));
  }

  static std::vector<int64_t> features_wanted(const Maps& maps, int dimension) {
    std::vector<int64_t> wanted(static_cast<size_t>(maps.labelled.numel()), 0);
    for (const int64_t volume : ops::persistence_places(maps.label, dimension, kFalling).volume)
      ++wanted[static_cast<size_t>(volume)];
    // An empty label has one component that is born at 0 and never dies: none at all.
    if (dimension == 0) {
      const bool* const labelled = maps.labelled.const_data_ptr<bool>();
      for (size_t i = 0; i < wanted.size(); ++i)
        if (!labelled[i]) wanted[i] = 0;
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

  // Pairs from the most persistent one on, equal ones as they came. On the host, sorted where the map is.
  static at::Tensor by_persistence(const ops::PairPlaces& pairs, const at::Tensor& map) {
    const at::Tensor flat = map.flatten(), births = at::tensor(pairs.birth, at::kLong).to(map.device()),
                     deaths = at::tensor(pairs.death, at::kLong).to(map.device());
    const at::Tensor death_values = flat.index_select(0, deaths.clamp_min(0)).masked_fill_(deaths < 0, 0);
    const at::Tensor persistence = flat.index_select(0, births) - death_values;
    return std::get<1>(persistence.sort(/*stable=*/true, 0, /*descending=*/true)).cpu();
  }

  static void counted(Critical& critical, const Maps& maps, int dimension) {
    const ops::PairPlaces pairs = ops::persistence_places(maps.prediction, dimension, kFalling);
    std::vector<int64_t> wanted = features_wanted(maps, dimension);
    const at::Tensor order = by_persistence(pairs, maps.prediction);
    for (auto* list : {&critical.born, &critical.died}) list->reserve(list->size() + pairs.birth.size());
    for (int64_t place = 0; place < order.numel(); ++place) {
      const size_t i = static_cast<size_t>(order.const_data_ptr<int64_t>()[place]);
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
  mutable double waited_ = 0;  // seconds
};

std::vector<at::Tensor> Topology::Critical::state() const {
  std::vector<int64_t> places{voxels, static_cast<int64_t>(alone.size()), static_cast<int64_t>(born.size())};
  for (const auto* list : {&alone, &born, &died}) places.insert(places.end(), list->begin(), list->end());
  std::vector<double> numbers{0};  // no tensor is empty
  for (const auto* list : {&wanted, &weight}) numbers.insert(numbers.end(), list->begin(), list->end());
  return {at::tensor(places, at::kLong), at::tensor(numbers, at::kDouble)};
}

Topology::Critical::Critical(const std::vector<at::Tensor>& state) {
  VOX_CHECK(state.size() == 2 && state[0].numel() >= 3, "the checkpoint holds no pairs of the term topology");
  const int64_t* at = state[0].const_data_ptr<int64_t>();
  const double* number = state[1].const_data_ptr<double>() + 1;
  voxels = at[0];
  const int64_t single = at[1], pairs = at[2];
  VOX_CHECK(
      single >= 0 && pairs >= 0 && state[0].numel() == 3 + single + 2 * pairs && state[1].numel() == 1 + 2 * single,
      "the checkpoint holds damaged pairs of the term topology");
  at += 3;
  for (auto* list : {&alone, &born, &died}) {
    const int64_t count = list == &alone ? single : pairs;
    list->assign(at, at + count);
    at += count;
    VOX_CHECK(std::all_of(list->begin(), list->end(), [&](int64_t place) { return place >= 0 && place < voxels; }),
              "the checkpoint holds pairs of the term topology that lie beyond their map");
  }
  for (auto* list : {&wanted, &weight}) {
    list->assign(number, number + single);
    number += single;
  }
}

}  // namespace

LossEntry topology_entry() {
  LossEntry entry = loss_entry<Topology>("topology", "Persistent components, tunnels and cavities against the label's");
  entry.default_every = 16;
  return entry;
}

}  // namespace vox
