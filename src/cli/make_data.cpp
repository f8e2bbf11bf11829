#include "cli/make_data.h"

#include "base/thread_pool.h"
#include "synth/synth.h"

namespace vox::cli {
namespace {

SynthRequest request_of(const DataOptions& data) {
  return {.folder = data.root,
          .count = data.synth.count,
          .size = data.synth.size,
          .seed = static_cast<uint64_t>(data.synth.seed)};
}

}  // namespace

void check_missing_data(const Options& options) {
  if (!options.data.synth.kind.empty()) check_synthetic(options.data.synth.kind, request_of(options.data));
}

void make_missing_data(const Options& options) {
  if (options.data.synth.kind.empty()) return;
  ThreadPool pool(options.system.num_cpus > 0 ? static_cast<int>(options.system.num_cpus) : available_cpus());
  make_synthetic(options.data.synth.kind, request_of(options.data), pool);
}

}  // namespace vox::cli
