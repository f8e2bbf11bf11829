#include "cli/make_data.h"

#include "base/thread_pool.h"
#include "synth/synth.h"

namespace vox::cli {

void make_missing_data(const Options& options) {
  const SynthOptions& synth = options.data.synth;
  if (synth.kind.empty()) return;
  ThreadPool pool(options.system.num_cpus > 0 ? static_cast<int>(options.system.num_cpus) : available_cpus());
  make_synthetic(synth.kind,
                 {.folder = options.data.root,
                  .count = synth.count,
                  .size = synth.size,
                  .seed = static_cast<uint64_t>(synth.seed)},
                 pool);
}

}  // namespace vox::cli
