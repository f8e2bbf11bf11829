#include "nets/network.h"

#include <torch/torch.h>

#include "base/error.h"
#include "base/text.h"
#include "nets/outputs.h"
#include "nets/registry.h"

namespace vox {

#define VOX_NETWORK(name) NetworkEntry name##_entry();
#include "nets/networks.list"
#undef VOX_NETWORK

const std::vector<NetworkEntry>& all_networks() {
#define VOX_NETWORK(name) name##_entry(),
  static const std::vector<NetworkEntry> entries{
#include "nets/networks.list"
  };
#undef VOX_NETWORK
  return entries;
}

std::unique_ptr<Network> make_network(const ModelOptions& options, uint64_t seed) {
  std::vector<std::string> names;
  for (const NetworkEntry& entry : all_networks()) {
    if (entry.name == options.architecture) return with_outputs_as_asked(entry.make(options, seed), options);
    names.push_back(entry.name);
  }
  const std::string meant = nearest(options.architecture, names);
  throw Error(concat("model.architecture: no network is called \"", options.architecture, "\"; there is ",
                     join(names, ", "), meant.empty() ? "" : concat(". Did you mean ", meant, "?")));
}

double LayerTable::gmac() const {
  double macs = 0;
  for (const ops::LayerRecord& layer : layers) macs += layer.macs;
  return macs * 1e-9;
}

LayerTable Network::layer_table(const Extent3& patch, int64_t samples) {
  const at::NoGradGuard no_grad;
  const ops::Trace trace;
  forward(
      at::empty({samples, in_channels_, patch.z, patch.y, patch.x}, at::TensorOptions(at::kFloat).device(at::kMeta)),
      {.training = true});
  const ops::Trace::Kept &kept = trace.kept(), &again = trace.largest_segment();
  return {trace.layers(), kept.plain + again.plain, kept.fused + again.fused, trace.moved()};
}

Extent3 Network::round_up(const Extent3& patch) const {
  const Extent3 d = divisor();
  Extent3 result;
  for (int axis = 0; axis < 3; ++axis) result[axis] = (patch[axis] + d[axis] - 1) / d[axis] * d[axis];
  return result;
}

void Network::require_divisible(const Extent3& patch) const {
  const Extent3 larger = round_up(patch);
  if (larger == patch && patch.voxels() > 0) return;
  const Extent3 d = divisor();
  Extent3 smaller;
  for (int axis = 0; axis < 3; ++axis) smaller[axis] = std::max(d[axis], patch[axis] / d[axis] * d[axis]);
  throw Error(concat("a patch of ", patch, " does not fit the network: its sizes must be multiples of ", d,
                     "; the nearest are ", smaller, " and ", max(larger, d)));
}

}  // namespace vox
