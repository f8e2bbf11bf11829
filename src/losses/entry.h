// What the files of single losses share: making an entry of the registry, and the probabilities that region losses see.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "config/params.h"
#include "losses/loss.h"

namespace vox {

// `Term` has a nested Options with describe(), and a constructor from it and the context.
template <class Term>
LossEntry loss_entry(const std::string& name, const std::string& help, bool regression = false) {
  LossEntry entry{.name = name, .help = help, .regression = regression};
  entry.make = [name](const Tree& params, const LossContext& context) -> std::unique_ptr<Loss> {
    return std::make_unique<Term>(parse_params<typename Term::Options>(params, "loss.terms: " + name), context);
  };
  entry.options = rows_of<typename Term::Options>;
  return entry;
}

struct RegionOptions {  // of losses that divide sums over regions
  bool batch = false, background = false;
  double smooth = 1e-5;
  void describe(Visitor& v);
  std::vector<int64_t> summed() const;  // the axes that are summed over
};

// Probabilities and targets [N, C, ...] of what counts, both zero where a voxel does not: classes by softmax, without
// channel 0 unless `background`; one channel, or targets with a volume for each, by sigmoid.
struct Regions {
  at::Tensor probability, target;
};
Regions regions_of(const LossInput& input, bool background);

}  // namespace vox
