#include "infer/case_source.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <vector>

#include "base/error.h"
#include "io/format.h"
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
  GatherOptions options{.interpolation = Interpolation::kNearest, .padding = Padding::kEdge};
  if (data.padding == "constant") options.padding = Padding::kConstant;
  if (data.padding == "reflect") options.padding = Padding::kReflect;
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

std::function<Block(const Box3&)> mask_in_file(const std::string& name, const Extent3& extent) {
  const std::shared_ptr<const VolumeReader> reader = open_volume(name);
  const VolumeInfo& info = reader->info();
  VOX_CHECK(info.extent == extent && info.channels == 1, "the mask ", name, " is ", info.extent, " with ",
            info.channels, " channel(s) but the image is ", extent, " after preprocessing; expected one channel of it");
  return [reader](const Box3& box) {
    const auto voxels = std::make_shared<Buffer>(box.voxels() * size_of(reader->info().dtype));
    reader->read(box, 0, voxels->data());
    const VolumeView view{.data = voxels->data(),
                          .dtype = reader->info().dtype,
                          .box = box,
                          .extent = reader->info().extent,
                          .stride_z = box.extent().y * box.extent().x,
                          .stride_y = box.extent().x};
    return Block{view, voxels};
  };
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
  if (!of_image) source.region = marked_box(fetch, source.extent);
  source.wanted = [fetch, window, extent = source.extent](const Extent3& begin) {
    const Box3 box = intersect({begin, begin + window}, whole(extent));
    return any_voxel(fetch(box).view, box);
  };
}

}  // namespace vox
