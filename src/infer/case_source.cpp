#include "infer/case_source.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <vector>

#include "base/error.h"
#include "volume/glob.h"
#include "volume/marked.h"

namespace vox {
namespace {

bool any_voxel(const VolumeView& view, const Box3& box) {
  return with_type(view.dtype, [&](auto tag) {
    using T = decltype(tag);
    const Extent3 from = box.begin - view.box.begin;
    const T* const voxels = reinterpret_cast<const T*>(view.data);
    for (int64_t z = 0; z < box.extent().z; ++z)
      for (int64_t y = 0; y < box.extent().y; ++y) {
        const T* row = voxels + (from.z + z) * view.stride_z + (from.y + y) * view.stride_y + from.x;
        if (std::any_of(row, row + box.extent().x, [](T value) { return value != T{0}; })) return true;
      }
    return false;
  });
}

std::string with_id(std::string pattern, const std::string& id) {
  for (size_t at = pattern.find("{id}"); at != std::string::npos; at = pattern.find("{id}", at + id.size()))
    pattern.replace(at, 4, id);
  return pattern;
}

int64_t channel_of(const std::string& mask, int64_t channels) {
  const std::string number = mask.substr(std::string("channel:").size());
  int64_t channel = -1;
  const auto [end, problem] = std::from_chars(number.data(), number.data() + number.size(), channel);
  VOX_CHECK(problem == std::errc() && end == number.data() + number.size() && channel >= 0 && channel < channels,
            "inference.mask is \"", mask, "\"; expected channel:0 to channel:", channels - 1, " of this image");
  return channel;
}

}  // namespace

GatherOptions outside_of(const DataOptions& data) {
  GatherOptions options{.interpolation = Interpolation::kNearest, .padding = padding_of(data.padding)};
  options.pad_value = static_cast<float>(data.pad_value);
  return options;
}

CaseInput input_of(const std::shared_ptr<Store>& store, int64_t case_index) {
  const Case& one = store->dataset().cases[static_cast<size_t>(case_index)];
  CaseInput input{one.id, store->facts(case_index).extent, store->image_channels(), {}, {}};
  input.image = [=](int64_t channel, const Box3& box) { return store->fetch(case_index, Role::kImage, channel, box); };
  if (!one.mask.empty()) input.mask = [=](const Box3& box) { return store->fetch(case_index, Role::kMask, 0, box); };
  return input;
}

WindowSource case_source(const CaseInput& input, const Extent3& window, const GatherOptions& outside) {
  WindowSource source{.extent = input.extent, .channels = input.channels};
  source.read = [=](const Extent3& begin, int64_t channel, float* out) {
    GatherMap map;
    map.origin = begin;
    const Block block = input.image(channel, read_box(map, window, outside, input.extent));
    gather_cpu({.data = out, .dtype = DType::kFloat32, .extent = window}, block.view, map, outside);
  };
  return source;
}

std::string mask_file(const MaskOptions& mask, const std::string& id) {
  if (mask.name.empty() || mask.name == "case" || mask.name.starts_with("channel:")) return "";
  const std::string file = with_id(mask.name, id), below = (std::filesystem::path(mask.root) / file).string();
  return !volume_exists(file) && volume_exists(below) ? below : file;
}

void skip_outside_mask(WindowSource& source, const CaseInput& input, const Extent3& window,
                       const MaskOptions& options) {
  const std::string& mask = options.name;
  if (mask.empty()) return;
  std::function<Block(const Box3&)> fetch = input.mask;
  const bool of_image = mask.starts_with("channel:");
  VOX_CHECK(of_image || input.mask, "inference.mask is \"", mask, "\", but case ", input.id,
            " has no mask; predict a --split of data with data.mask, or name a file with {id}");
  if (of_image)
    fetch = [image = input.image, channel = channel_of(mask, source.channels)](const Box3& box) {
      return image(channel, box);
    };
  if (!of_image) source.region = marked_box(fetch, source.extent, std::min(window.z, kMarkedSlices));
  source.wanted = [fetch, window, extent = source.extent](const Extent3& begin) {
    const Box3 box = intersect({begin, begin + window}, whole(extent));
    return any_voxel(fetch(box).view, box);
  };
}

}  // namespace vox
