#include "train/placement.h"

#include "base/error.h"
#include "base/text.h"

namespace vox {
namespace {

std::string gib(int64_t bytes) {
  return format_number(static_cast<double>(bytes) / (1 << 30), 1) + " GiB";
}

std::string sizes(const PlacementFacts& facts) {
  return concat(gib(facts.volume_bytes), " of training volumes, ", gib(facts.free_bytes), " free on the GPU");
}

}  // namespace

Placement decide_placement(const std::string& wanted, const PlacementFacts& facts) {
  const std::string host_tier = facts.in_memory && wanted != "disk" ? "host" : "disk";
  if (!facts.on_gpu) {
    const bool ignored = wanted == "gpu";
    return {GatherOn::kHost, host_tier,
            ignored ? "data.placement is gpu, but the network trains on the CPU: volumes stay with it" : ""};
  }
  if (!facts.why_on_host.empty())
    return {GatherOn::kHost, host_tier, concat("batches are made on the host, because ", facts.why_on_host)};
  const bool fits = facts.volume_bytes + facts.kept_bytes <= facts.free_bytes;
  VOX_CHECK(wanted != "gpu" || fits, "data.placement is gpu, but there are ", sizes(facts),
            ", of which the step needs ", gib(facts.kept_bytes), "; use data.placement=auto");
  if (fits && (wanted == "auto" || wanted == "gpu"))
    return {GatherOn::kDevice, "gpu", concat("data.placement: gpu, all volumes fit there (", sizes(facts), ")")};
  const std::string why = wanted != "auto" ? "as asked for"
                          : facts.in_memory
                              ? concat("they do not fit on the GPU (", sizes(facts), ")")
                              : concat("they fit neither on the GPU (", sizes(facts), ") nor into data.cache_gb");
  return {GatherOn::kDeviceFromBoxes, host_tier,
          concat("data.placement: ", host_tier, ", ", why, "; the box of each patch goes to the GPU a step ahead")};
}

}  // namespace vox
