#include "nets/recognise.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "nets/shape_view.h"

namespace vox {
namespace {

struct Signature {
  const char* architecture;
  std::vector<std::string> names;  // all of them are there, below one prefix
  Strings (*infer)(const ShapeView& shapes);
};

const std::vector<Signature>& signatures() {
  static const std::vector<Signature> all{
      {"unet", {"encoder.stages.0.0.convs.0.conv.weight", "decoder.transpconvs.0.weight"}, infer_unet},
      {"resenc_unet",
       {"encoder.stages.0.blocks.0.conv1.conv.weight", "decoder.transpconvs.0.weight"},
       infer_resenc_unet},
      {"monai_basic_unet3d", {"conv_0.conv_0.conv.weight", "final_conv.weight"}, infer_monai_basic_unet3d},
      {"monai_unet", {"model.0.conv.unit0.conv.weight", "model.2.1.conv.unit0.conv.weight"}, infer_monai_unet},
      {"monai_unet", {"model.0.conv.weight", "model.2.conv.weight"}, infer_monai_unet},
      {"dynunet", {"input_block.conv1.conv.weight", "output_block.conv.conv.weight"}, infer_dynunet},
      {"mednext", {"enc_block_0.0.conv1.weight", "stem.weight"}, infer_mednext},
      {"rsunet", {"input_conv.pre.1.weight", "output_head.weight"}, infer_rsunet},
      {"openkbp_unet", {"e.0.weight", "o.weight"}, infer_openkbp_unet},
      {"cascade_unet",
       {"net_A.encoder.encoder_1.0.single_conv.0.weight", "net_B.encoder.encoder_1.0.single_conv.0.weight"},
       infer_cascade_unet}};
  return all;
}

// Where `name` stands in a wrapper: what comes before it, for each place. Averages of weights come last.
std::vector<std::string> prefixes_of(const ShapeMap& shapes, const std::string& name) {
  std::vector<std::string> prefixes;
  for (const auto& [full, shape] : shapes) {
    if (!full.ends_with(name)) continue;
    const std::string prefix = full.substr(0, full.size() - name.size());
    if (prefix.empty() || prefix.back() == '.') prefixes.push_back(prefix);
  }
  std::stable_sort(prefixes.begin(), prefixes.end(), [](const std::string& a, const std::string& b) {
    const bool average_a = a.find("ema") != std::string::npos, average_b = b.find("ema") != std::string::npos;
    return average_a != average_b ? average_b : a.size() < b.size();
  });
  return prefixes;
}

}  // namespace

std::optional<Recognised> recognise(const ShapeMap& shapes, const std::string& architecture) {
  for (const Signature& signature : signatures()) {
    if (!architecture.empty() && architecture != signature.architecture) continue;
    for (const std::string& prefix : prefixes_of(shapes, signature.names.front())) {
      const bool all_there = std::all_of(signature.names.begin(), signature.names.end(),
                                         [&](const std::string& name) { return shapes.count(prefix + name) > 0; });
      if (!all_there) continue;
      return Recognised{signature.architecture, prefix, signature.infer(ShapeView(shapes, prefix))};
    }
  }
  return std::nullopt;
}

ShapeView::ShapeView(const ShapeMap& shapes, const std::string& prefix) {
  for (const auto& [name, shape] : shapes) {
    if (name.starts_with(prefix)) shapes_[name.substr(prefix.size())] = shape;
  }
}

bool ShapeView::any_ends_with(const std::string& suffix) const {
  return std::any_of(shapes_.begin(), shapes_.end(), [&](const auto& entry) { return entry.first.ends_with(suffix); });
}

int64_t ShapeView::size(const std::string& name, size_t axis) const {
  const auto found = shapes_.find(name);
  return found == shapes_.end() || axis >= found->second.size() ? 0 : found->second[axis];
}

std::vector<int64_t> ShapeView::kernel(const std::string& name) const {
  const auto found = shapes_.find(name);
  if (found == shapes_.end() || found->second.size() < 3) return {1, 1, 1};
  return {found->second.end() - 3, found->second.end()};
}

int64_t ShapeView::count(const std::string& before, const std::string& after) const {
  int64_t n = 0;
  while (has(before + std::to_string(n) + after)) ++n;
  return n;
}

std::string option(const std::string& key, int64_t value) {
  return concat(key, "=", value);
}

std::string option(const std::string& key, const std::vector<int64_t>& values) {
  Strings parts;
  for (const int64_t value : values) parts.push_back(std::to_string(value));
  return concat(key, "=[", join(parts, ", "), "]");
}

std::string option(const std::string& key, const std::vector<std::vector<int64_t>>& values) {
  Strings parts;
  for (const std::vector<int64_t>& v : values) {
    Strings numbers;
    for (const int64_t value : v) numbers.push_back(std::to_string(value));
    parts.push_back("[" + join(numbers, ", ") + "]");
  }
  return concat(key, "=[", join(parts, ", "), "]");
}

}  // namespace vox
