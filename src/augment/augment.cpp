#include "augment/augment.h"

#include <algorithm>
#include <cmath>

#include "augment/spatial.h"
#include "base/error.h"
#include "base/text.h"

namespace vox {

#define VOX_TRANSFORM(name, stream) TransformEntry name##_transform();
#include "augment/transforms.list"
#undef VOX_TRANSFORM

namespace {

TransformEntry with_stream(TransformEntry entry, uint32_t stream) {
  entry.stream = stream;
  return entry;
}

}  // namespace

const std::vector<TransformEntry>& all_transforms() {
#define VOX_TRANSFORM(name, stream) with_stream(name##_transform(), stream),
  static const std::vector<TransformEntry> entries{
#include "augment/transforms.list"
  };
#undef VOX_TRANSFORM
  return entries;
}

namespace {

// Masks among the image channels keep their values whatever is drawn.
void leave_other_channels_alone(const std::vector<int64_t>& channels, Drawn& drawn) {
  for (auto& [name, op] : drawn.intensity)
    op = [channels, apply = std::move(op)](const PatchView& patch) {
      if (std::find(channels.begin(), channels.end(), patch.channel) != channels.end()) apply(patch);
    };
  for (StepOfChannel& step : drawn.steps)
    if (step)
      step = [channels, of = std::move(step)](int64_t channel) {
        const bool acted_on = std::find(channels.begin(), channels.end(), channel) != channels.end();
        return acted_on ? of(channel) : std::nullopt;
      };
}

}  // namespace

Drawn draw_transforms(const AugmentationOptions& options, const DrawContext& context, uint64_t seed, int64_t sample) {
  Drawn drawn;
  if (!options.enabled) return drawn;
  for (const int64_t channel : options.channels)
    VOX_CHECK(channel >= 0 && channel < context.channels, "augmentation.channels names channel ", channel,
              ", but the image has ", context.channels, "; the first is 0");
  for (const TransformEntry& entry : all_transforms())
    if (entry.enabled(options))
      entry.draw(options, context, Random(seed, static_cast<uint64_t>(sample), kTransforms + entry.stream), drawn);
  const std::vector<int64_t>& acted_on = options.channels.empty() ? context.continuous : options.channels;
  if (!acted_on.empty()) leave_other_channels_alone(acted_on, drawn);
  return drawn;
}

Drawn draw_transforms(const AugmentationOptions& options, const Extent3& patch, const Spacing3& spacing, uint64_t seed,
                      int64_t sample, int64_t channels) {
  return draw_transforms(options, {.patch = patch, .spacing = spacing, .channels = channels}, seed, sample);
}

std::vector<IntensityStep> steps_of(const Drawn& drawn, int64_t channel) {
  VOX_ASSERT(drawn.steps.size() == drawn.intensity.size());
  std::vector<IntensityStep> steps;
  for (const StepOfChannel& of : drawn.steps)
    if (std::optional<IntensityStep> step = of(channel)) steps.push_back(std::move(*step));
  return steps;
}

std::string host_only_transform(const AugmentationOptions& options) {
  if (!options.enabled) return "";
  for (const TransformEntry& entry : all_transforms())
    if (entry.on_host_only && entry.enabled(options)) return entry.name;
  return "";
}

SpatialMap compose(const SpatialMap& first, const SpatialMap& then) {
  SpatialMap both;
  for (int row = 0; row < 3; ++row) {
    both.shift[row] = then.shift[row];
    for (int k = 0; k < 3; ++k) both.shift[row] += then.linear[row][k] * first.shift[k];
    for (int column = 0; column < 3; ++column) {
      both.linear[row][column] = 0;
      for (int k = 0; k < 3; ++k) both.linear[row][column] += then.linear[row][k] * first.linear[k][column];
    }
  }
  return both;
}

namespace {

bool moves_voxels(const SpatialMap& map) {  // whole numbers only: no voxel needs interpolation
  for (int row = 0; row < 3; ++row) {
    if (map.shift[row] != std::floor(map.shift[row])) return false;
    for (const double value : map.linear[row])
      if (value != 0 && std::abs(value) != 1) return false;
  }
  return true;
}

}  // namespace

GatherMap to_gather_map(const SpatialMap& map, const Extent3& begin, const Extent3& extent) {
  GatherMap out;
  const bool exact = moves_voxels(map);
  for (int row = 0; row < 3; ++row) {
    double first = static_cast<double>(extent[row] - 1) / 2 + map.shift[row];
    for (int column = 0; column < 3; ++column) {
      first -= map.linear[row][column] * (static_cast<double>(extent[column] - 1) / 2);
      out.matrix[row][column] = static_cast<float>(map.linear[row][column]);
    }
    const double whole_part = std::floor(first);
    out.origin[row] = begin[row] + static_cast<int64_t>(whole_part);
    out.offset[row] = exact ? 0.0f : static_cast<float>(first - whole_part);
  }
  return out;
}

GatherMap to_gather_map(const Drawn& drawn, const Extent3& begin, const Extent3& extent) {
  GatherMap map = to_gather_map(drawn.map, begin, extent);
  map.deformation = drawn.deformation;
  return map;
}

void add_map(Drawn& drawn, const SpatialMap& map) {
  drawn.map = compose(map, drawn.map);
}

SpatialMap from_millimetres(const double (&in_mm)[3][3], const Spacing3& spacing) {
  SpatialMap map;
  for (int row = 0; row < 3; ++row)
    for (int column = 0; column < 3; ++column)
      map.linear[row][column] = in_mm[row][column] * spacing[column] / spacing[row];
  return map;
}

double draw_between(const std::vector<double>& range, const char* option, Random& random) {
  VOX_CHECK(range.size() == 2 && range[0] <= range[1], "augmentation.", option, " must be two numbers, low and high, ",
            "such as -0.1,0.1");
  return random.uniform(range[0], range[1]);
}

double draw_about_one(const std::vector<double>& range, bool balanced, const char* option, Random& random) {
  if (!balanced) return draw_between(range, option, random);
  VOX_CHECK(range.size() == 2 && range[0] <= 1 && range[1] >= 1, "augmentation.", option,
            " must hold 1 where `balanced` is on, such as 0.75,1.25");
  const bool below = random.chance(0.5);
  return below ? random.uniform(range[0], 1) : random.uniform(1, range[1]);
}

int checked_axis(int64_t axis, const char* option) {
  VOX_CHECK(axis >= 0 && axis < 3, "augmentation.", option, " has axis ", axis, "; axes are 0 (z), 1 (y) and 2 (x)");
  return static_cast<int>(axis);
}

Deformation& deformation_of(Drawn& drawn) {
  if (!drawn.deformation) drawn.deformation = std::make_shared<Deformation>();
  return *drawn.deformation;
}

std::string triple(const double (&values)[3]) {
  return format_number(values[0], 4) + "," + format_number(values[1], 4) + "," + format_number(values[2], 4);
}

}  // namespace vox
