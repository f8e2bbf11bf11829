#include "cli/layer_table.h"

#include <algorithm>
#include <iomanip>
#include <sstream>

#include "base/error.h"
#include "base/text.h"
#include "measure/memory_estimate.h"
#include "train/learner.h"

namespace vox::cli {
namespace {

std::string shape_text(const std::vector<int64_t>& shape) {
  std::vector<std::string> parts;
  for (const int64_t size : shape) parts.push_back(std::to_string(size));
  return join(parts, "x");
}

class Table {  // columns of text, the first to the left, the others to the right
 public:
  void add(std::vector<std::string> row) {
    widths_.resize(std::max(widths_.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths_[i] = std::max(widths_[i], row[i].size());
    rows_.push_back(std::move(row));
  }
  std::string text(const std::string& start) const {
    std::ostringstream out;
    for (const auto& row : rows_) {
      out << start << std::left;
      for (size_t i = 0; i < row.size(); ++i) {
        if (i == 1) out << std::right;
        out << (i == 0 ? "" : "  ") << std::setw(static_cast<int>(widths_[i])) << row[i];
      }
      out << '\n';
    }
    return out.str();
  }

 private:
  std::vector<std::vector<std::string>> rows_;
  std::vector<size_t> widths_;
};

std::string memory_line(const MemoryEstimate& memory) {
  return concat("# memory about ", human_bytes(memory.total()), ": weights ", human_bytes(memory.weights),
                ", gradients ", human_bytes(memory.gradients), ", optimizer ", human_bytes(memory.optimizer),
                ", activations ", human_bytes(memory.activations), ", working space ", human_bytes(memory.working),
                "\n");
}

// A checkpoint is a copy of masters, their average and the optimizer's state; on a GPU it is made there.
std::string whole_run_line(const Options& options, int64_t weights, int64_t optimizer, int64_t training_bytes) {
  const int64_t copied = weights * (options.training.ema > 0 ? 2 : 1) + optimizer;
  const std::string volumes = concat(", and the volumes to train on, at most ", human_bytes(training_bytes),
                                     ", where data.placement puts them");
  return concat("# beside the step: ", human_bytes(copied), " while a checkpoint is copied",
                training_bytes > 0 ? volumes : "", "\n");
}

}  // namespace

std::string layer_table_text(const Options& options, int64_t image_channels, int64_t training_bytes) {
  const bool assumed = image_channels == 0 || options.model.out_channels == 0;
  const ModelOptions model = resolve_model(options, std::max<int64_t>(1, image_channels), {0, 1});
  const std::unique_ptr<Network> network = make_network(model, 0);
  network->require_divisible(options.data.patch_size);
  const LayerTable table = network->layer_table(options.data.patch_size, options.data.batch_size);
  std::string text =
      concat("\n# ", model.architecture, " with ", model.in_channels, model.in_channels == 1 ? " channel" : " channels",
             " in and ", model.out_channels, " out", assumed ? " (auto: the data may say otherwise)" : "",
             ", a batch of ", options.data.batch_size, " patches of ", options.data.patch_size, ", precision ",
             options.training.precision, "\n");
  Table layers;
  layers.add({"layer", "output", "parameters", "GMAC"});
  for (const ops::LayerRecord& layer : table.layers) {
    layers.add(
        {layer.name, shape_text(layer.output), std::to_string(layer.parameters), format_number(layer.macs * 1e-9, 3)});
  }
  const double share = static_cast<double>(options.data.batch_size);
  text += layers.text("# ");
  text += concat("# ", network->parameters().count(), " trained parameters with the norms; ",
                 format_number(table.gmac() / share, 2), " GMAC a sample forward\n");
  Options resolved = options;
  resolved.model = model;
  const MemoryEstimate memory = estimate_memory(resolved, network->parameters(), table, memory_here(options.system));
  const auto weights = network->parameters().count() * static_cast<int64_t>(sizeof(float));
  return text + memory_line(memory) + whole_run_line(options, weights, memory.optimizer, training_bytes);
}

}  // namespace vox::cli
