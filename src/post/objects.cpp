// From predicted boundaries or affinities to numbered objects: seeded watershed and mutex watershed.
#include <algorithm>
#include <cmath>

#include "config/params.h"
#include "kernels/edt.h"
#include "kernels/watershed.h"
#include "post/connectivity.h"
#include "post/post.h"

namespace vox {
namespace {

struct WatershedOptions : ConnectivityOptions {
  double level = 0.5, seed = 0.9, boundary = 0.8, distance = 0;
  int64_t min_seed = 1, min_voxels = 1;
  void describe(Visitor& v) {
    v.field("level", level,
            {.meaning = "Foreground probability above which a voxel may belong to an object; a mask "
                        "made by earlier steps counts instead",
             .min = 0,
             .max = 1});
    v.field("seed", seed, {.meaning = "Foreground probability above which a voxel may be a seed", .min = 0, .max = 1});
    v.field("boundary", boundary,
            {.meaning = "Boundary probability (second channel) below which a voxel may be a seed", .min = 0, .max = 1});
    v.field("distance", distance,
            {.meaning = "Seeds lie further than this from the outside; above 0, the flood starts deep inside",
             .unit = "voxels",
             .min = 0,
             .max = 1e6});
    v.field("min_seed", min_seed, {.meaning = "Smaller seeds are none", .unit = "voxels", .min = 1, .max = 1e15});
    v.field("min_voxels", min_voxels, {.meaning = "Smaller objects go", .unit = "voxels", .min = 1, .max = 1e15});
    ConnectivityOptions::describe(v);
  }
};

struct MutexOptions {
  std::vector<Extent3> offsets{{1, 0, 0}, {0, 1, 0}, {0, 0, 1}};
  Extent3 stride{1, 1, 1};
  int64_t attractive = 3, min_voxels = 1;
  double level = 0;
  void describe(Visitor& v) {
    v.field("offsets", offsets,
            {.meaning = "Steps back to the other voxel of each channel, as of the affinity target",
             .unit = "voxels",
             .min = 0,
             .max = 1000});
    v.field("attractive", attractive,
            {.meaning = "So many channels, the first, join voxels; the others keep them apart", .min = 1, .max = 1000});
    v.field("stride", stride,
            {.meaning = "Only voxels on this grid are kept apart from others", .unit = "voxels", .min = 1, .max = 100});
    v.field("level", level,
            {.meaning = "Voxels none of whose attractive affinities is above this are background; 0: none are",
             .min = 0,
             .max = 1});
    v.field("min_voxels", min_voxels, {.meaning = "Smaller objects go", .unit = "voxels", .min = 1, .max = 1e15});
  }
};

// Takes away objects below a size and numbers the others from 1 in the order of their first voxels.
void renumber(std::vector<uint32_t>& objects, int64_t min_voxels) {
  const uint32_t last = objects.empty() ? 0 : *std::max_element(objects.begin(), objects.end());
  std::vector<int64_t> sizes(size_t{last} + 1);
  for (const uint32_t object : objects) ++sizes[object];
  std::vector<uint32_t> number(sizes.size());
  uint32_t next = 0;
  for (uint32_t& object : objects) {
    if (object == 0) continue;
    if (number[object] == 0 && sizes[object] >= min_voxels) number[object] = ++next;
    object = number[object];
  }
}

std::vector<float> depths_of(const std::vector<uint8_t>& mask, const Extent3& extent) {
  std::vector<float> depth(mask.size());
  edt_squared_cpu(depth.data(), mask.data(), extent);
  for (float& value : depth) value = std::sqrt(value);
  return depth;
}

std::vector<uint32_t> seeds_of(const PostVolume& volume, const std::vector<float>& depth,
                               const WatershedOptions& options) {
  const size_t voxels = volume.mask.size();
  std::vector<uint8_t> chosen(voxels);
  for (size_t i = 0; i < voxels; ++i) {
    bool is_seed = volume.mask[i] != 0;
    if (!volume.probability.empty()) is_seed = is_seed && static_cast<double>(volume.probability[i]) > options.seed;
    if (volume.channels > 1)
      is_seed = is_seed && static_cast<double>(volume.probability[voxels + i]) < options.boundary;
    if (!depth.empty()) is_seed = is_seed && static_cast<double>(depth[i]) > options.distance;
    chosen[i] = is_seed;
  }
  std::vector<uint32_t> seeds(voxels);
  components_cpu(seeds.data(), chosen.data(), volume.extent, options.value());
  renumber(seeds, options.min_seed);
  return seeds;
}

void flood(PostVolume& volume, const WatershedOptions& options) {
  const auto voxels = static_cast<size_t>(volume.extent.voxels());
  if (volume.mask.empty()) {
    volume.mask.resize(voxels);
    for (size_t i = 0; i < voxels; ++i) volume.mask[i] = static_cast<double>(volume.probability[i]) > options.level;
  }
  const bool deep = options.distance > 0 || volume.probability.empty();
  std::vector<float> height = deep ? depths_of(volume.mask, volume.extent) : std::vector<float>();
  volume.objects = seeds_of(volume, height, options);
  height.resize(voxels);
  for (size_t i = 0; i < voxels; ++i) {
    if (volume.channels > 1)
      height[i] = volume.probability[voxels + i];
    else
      height[i] = deep ? -height[i] : -volume.probability[i];
  }
  watershed_cpu(volume.objects.data(), height.data(), volume.mask.data(), volume.extent, options.value());
  renumber(volume.objects, options.min_voxels);
}

void require_fitting(int64_t channels, const Extent3& extent, const MutexOptions& options) {
  const auto offsets = static_cast<int64_t>(options.offsets.size());
  VOX_CHECK(channels == offsets, "postprocess: mutex_watershed: there are ", channels,
            " channels of affinities and offsets has ", offsets, " entries; each channel needs its offset");
  VOX_CHECK(extent.voxels() * channels < int64_t{UINT32_MAX}, "postprocess: mutex_watershed: ", extent, " voxels with ",
            channels, " affinities each are more than 2^32 edges; work on parts of the volume");
}

void join_and_keep_apart(PostVolume& volume, const MutexOptions& options) {
  const auto channels = static_cast<int64_t>(options.offsets.size());
  const int64_t voxels = volume.extent.voxels();
  std::vector<uint8_t> mask = volume.mask;
  if (mask.empty() && options.level > 0) {
    mask.resize(static_cast<size_t>(voxels));
    for (int64_t edge = 0; edge < std::min(options.attractive, channels) * voxels; ++edge)
      if (static_cast<double>(volume.probability[static_cast<size_t>(edge)]) > options.level)
        mask[static_cast<size_t>(edge % voxels)] = 1;
  }
  if (!volume.covered.empty()) {
    if (mask.empty()) mask.assign(static_cast<size_t>(voxels), 1);
    for (size_t i = 0; i < mask.size(); ++i) mask[i] = mask[i] != 0 && volume.covered[i] != 0;
  }
  volume.objects.resize(static_cast<size_t>(voxels));
  const AffinityEdges edges{volume.probability.data(), options.offsets, options.attractive, options.stride};
  mutex_watershed_cpu(volume.objects.data(), edges, mask.empty() ? nullptr : mask.data(), volume.extent);
  renumber(volume.objects, options.min_voxels);
}

}  // namespace

PostEntry watershed_post() {
  return {"watershed", "Objects by flooding from seeds: foreground, and boundaries in a second channel if there is one",
          PostKind::kObjects,
          [](const Tree& params) -> PostStep {
            const auto options = parse_params<WatershedOptions>(params, "postprocess: watershed");
            options.value();
            return {[options](PostVolume& volume) { flood(volume, options); },
                    {28, 16},
                    [](int64_t, const Extent3& extent) {
                      VOX_CHECK(extent.voxels() < int64_t{UINT32_MAX}, "postprocess: watershed: ", extent,
                                " voxels are more than 2^32; work on parts of the volume");
                    }};
          },
          rows_of<WatershedOptions>};
}

PostEntry mutex_watershed_post() {
  return {"mutex_watershed",
          "Objects from affinities, a channel per offset, without seeds",
          PostKind::kObjects,
          [](const Tree& params) -> PostStep {
            const auto options = parse_params<MutexOptions>(params, "postprocess: mutex_watershed");
            return {[options](PostVolume& volume) { join_and_keep_apart(volume, options); },
                    {28, 16},
                    [options](int64_t channels, const Extent3& extent) { require_fitting(channels, extent, options); }};
          },
          rows_of<MutexOptions>,
          /*of_affinities=*/true};
}

}  // namespace vox
