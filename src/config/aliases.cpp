#include "config/aliases.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/text.h"

namespace vox {
namespace {

struct Renamed {
  const char *alias, *canonical;
};
constexpr std::array kRenamed{
    Renamed{"training.workers", "data.num_workers"},
    Renamed{"training.train_batch_size", "data.batch_size"},
    Renamed{"training.train_iterations_per_epoch", "training.iterations_per_epoch"},
    Renamed{"data.iter_num", "training.iterations_per_epoch"},
    Renamed{"data.max_epochs", "training.max_epochs"},
    Renamed{"training.accumulate_steps", "training.accumulate"},
    Renamed{"training.accumulate_grad_batches", "training.accumulate"},
    Renamed{"training.log_every_n_steps", "monitor.log_every"},
    Renamed{"visualization.enabled", "monitor.images"},
};

struct Reworded {  // a value by another name
  const char *key, *alias, *canonical;
};
constexpr std::array kReworded{Reworded{"training.precision", "amp", "16-mixed"},
                               Reworded{"inference.tta", "true", "mirror"}, Reworded{"inference.tta", "false", "none"}};

struct WithoutEffect {
  const char *name, *why;
};
constexpr const char* kNoWorkers = "Voxloom reads with threads, not with worker processes";
constexpr const char* kNoCompiler = "Voxloom has its own fused kernels and compiles nothing at run time";
constexpr const char* kOwnChoice = "Voxloom chooses convolution algorithms by measuring them";
constexpr std::array kWithoutEffect{
    WithoutEffect{"persistent_workers", kNoWorkers},
    WithoutEffect{"multiprocessing_context", kNoWorkers},
    WithoutEffect{"pin_memory", "Voxloom's batches always lie in recycled pinned memory where there is a GPU"},
    WithoutEffect{"use_preloaded_cache", "Voxloom keeps volumes in memory up to data.cache_gb"},
    WithoutEffect{"jit_compile", kNoCompiler},
    WithoutEffect{"compile", kNoCompiler},
    WithoutEffect{"compile_mode", kNoCompiler},
    WithoutEffect{"torch_compile", kNoCompiler},
    WithoutEffect{"benchmark", kOwnChoice},
    WithoutEffect{"cudnn_benchmark", kOwnChoice},
};
constexpr std::array<const char*, 4> kSectionsOfTheField{"system", "model", "data", "training"};  // or none

const WithoutEffect* find_without_effect(const std::string& key) {
  std::vector<std::string> path = split(key, '.');
  const auto& sections = kSectionsOfTheField;
  if (path.size() > 1 && std::find(sections.begin(), sections.end(), path[0]) != sections.end())
    path.erase(path.begin());
  for (const WithoutEffect& entry : kWithoutEffect)
    if (path[0] == entry.name) return &entry;  // what stands below it (compile: {mode: ...}) has no effect either
  return nullptr;
}

}  // namespace

Translation translate(const std::string& key, const Tree& value) {
  for (const Renamed& entry : kRenamed)
    if (key == entry.alias) return {KeyUse::kMapped, entry.canonical, value, concat("is ", entry.canonical, " here")};
  for (const Reworded& entry : kReworded) {
    if (key != entry.key || value.kind != Tree::Kind::kScalar || value.scalar != entry.alias) continue;
    return {KeyUse::kMapped, key, scalar_tree(entry.canonical, value.where),
            concat(entry.alias, " is ", entry.canonical, " here")};
  }
  if (const WithoutEffect* entry = find_without_effect(key))
    return {KeyUse::kNoEffect, "", value, concat("has no effect: ", entry->why)};
  return {KeyUse::kUsed, key, value, ""};
}

std::vector<AliasRow> alias_rows() {
  std::vector<AliasRow> rows;
  for (const Renamed& entry : kRenamed) rows.push_back({entry.alias, entry.canonical, ""});
  for (const Reworded& entry : kReworded)
    rows.push_back({concat(entry.key, ": ", entry.alias), concat(entry.key, ": ", entry.canonical), ""});
  for (const WithoutEffect& entry : kWithoutEffect) rows.push_back({entry.name, "", entry.why});
  return rows;
}

}  // namespace vox
