#pragma once

#include "config/visitor.h"

namespace vox {

struct SystemOptions {
  int64_t num_gpus = -1;        // -1: auto (one where there is one)
  int64_t num_cpus = 0;         // 0: all that this process may use
  int64_t compute_threads = 0;  // torch's own threads; 0: auto
  std::string kernel_arch = "auto";

  void describe(Visitor& v) {
    v.field("num_gpus", num_gpus,
            {.meaning = "GPUs to train on; 0 is the CPU, auto is one where there is one",
             .min = 0,
             .max = 1024,
             .named = NamedValue{"auto", -1}});
    v.field("num_cpus", num_cpus,
            {.meaning = "Bound of all threads together; auto is every CPU this process may use",
             .unit = "threads",
             .min = 1,
             .max = 4096,
             .named = NamedValue{"auto", 0}});
    v.field("compute_threads", compute_threads,
            {.meaning = "Threads of the network's arithmetic on the CPU",
             .unit = "threads",
             .min = 1,
             .max = 4096,
             .named = NamedValue{"auto", 0}});
    v.field("kernel_arch", kernel_arch, {.meaning = "Variant of the kernels; auto is the best this machine runs"});
  }
  bool operator==(const SystemOptions&) const = default;
};

}  // namespace vox
