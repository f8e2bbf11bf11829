#include "cli/inspect_volume.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.h"
#include "base/text.h"
#include "base/thread_pool.h"
#include "io/format.h"

namespace vox::cli {
namespace {

constexpr int64_t kSlabBytes = int64_t{32} << 20;
constexpr size_t kMostLabels = 256;

// Counts distinct whole values until there are too many of them, or one is not whole.
class LabelCounter {
 public:
  bool gave_up() const { return gave_up_; }
  const LabelCounts& counts() const { return counts_; }

  template <class T>
  void add(const T* values, int64_t count, double scale, double offset) {
    if constexpr (sizeof(T) == 1) return add_bytes(values, count, scale, offset);
    for (int64_t begin = 0; begin < count && !gave_up_;) {  // labels come in runs
      int64_t end = begin + 1;
      while (end < count && values[end] == values[begin]) ++end;
      add_run(static_cast<double>(values[begin]) * scale + offset, end - begin);
      begin = end;
    }
  }
  void merge(const LabelCounter& other) {
    gave_up_ = gave_up_ || other.gave_up_;
    for (const auto& [value, voxels] : other.counts_) add_run(static_cast<double>(value), voxels);
  }

 private:
  template <class T>
  void add_bytes(const T* values, int64_t count, double scale, double offset) {
    std::array<int64_t, 256> voxels{};
    for (int64_t i = 0; i < count; ++i) ++voxels[static_cast<uint8_t>(values[i])];
    for (size_t bits = 0; bits < voxels.size(); ++bits)
      if (voxels[bits] > 0) add_run(static_cast<double>(static_cast<T>(bits)) * scale + offset, voxels[bits]);
  }
  void add_run(double value, int64_t voxels) {
    if (gave_up_) return;
    gave_up_ = !(std::abs(value) < 0x1p53) || value != std::floor(value);  // NaN gives up too
    if (gave_up_) return;
    counts_[static_cast<int64_t>(value)] += voxels;
    gave_up_ = counts_.size() > kMostLabels;
  }
  LabelCounts counts_;
  bool gave_up_ = false;
};

struct SlabFacts {
  Moments moments;  // of stored values
  LabelCounter labels;
};

SlabFacts inspect_values(const std::byte* data, const VolumeInfo& info, int64_t count, bool want_labels) {
  SlabFacts facts;
  facts.moments = moments_of(data, info.dtype, count);
  if (!want_labels) return facts;
  with_type(info.dtype, [&](auto zero) {
    facts.labels.add(reinterpret_cast<const decltype(zero)*>(data), count, info.scale, info.offset);
  });
  return facts;
}

// Parts are merged in their order, so that the result does not depend on the number of threads.
SlabFacts inspect_slab(const std::byte* data, const VolumeInfo& info, int64_t count, bool want_labels,
                       ThreadPool& pool) {
  constexpr int64_t kPartVoxels = int64_t{1} << 20;
  const int64_t parts = (count + kPartVoxels - 1) / kPartVoxels;
  std::vector<SlabFacts> found(static_cast<size_t>(parts));
  pool.for_each(parts, [&](int64_t part) {
    const int64_t begin = part * kPartVoxels, voxels = std::min(kPartVoxels, count - begin);
    found[static_cast<size_t>(part)] = inspect_values(data + begin * size_of(info.dtype), info, voxels, want_labels);
  });
  SlabFacts facts;
  for (int64_t part = 0; part < parts; ++part) {
    facts.moments.merge(found[static_cast<size_t>(part)].moments, part * kPartVoxels);
    facts.labels.merge(found[static_cast<size_t>(part)].labels);
  }
  return facts;
}

int64_t slab_thickness(const VolumeInfo& info) {
  const int64_t slice_bytes = info.extent.y * info.extent.x * size_of(info.dtype);
  const int64_t slices = std::clamp<int64_t>(kSlabBytes / slice_bytes, 1, info.extent.z);
  const bool whole_chunks = info.chunk.z > 1 && info.chunk.z <= slices;
  return whole_chunks ? slices / info.chunk.z * info.chunk.z : slices;
}

std::string place_of(int64_t index, const VolumeInfo& info) {
  const Extent3& extent = info.extent;
  const int64_t channel = index / extent.voxels(), voxel = index % extent.voxels();
  const std::string in_channel = info.channels > 1 ? concat(" of channel ", channel) : "";
  return concat("z,y,x = ", voxel / (extent.y * extent.x), ",", voxel / extent.x % extent.y, ",", voxel % extent.x,
                in_channel);
}

void judge_values(const VolumeFacts& facts, std::vector<std::string>* problems) {
  const Moments& values = facts.values;
  if (values.not_finite > 0)
    problems->push_back(concat(values.not_finite, " values are NaN or infinite, the first at ",
                               place_of(values.first_not_finite, facts.info)));
  if (values.count > 1 && values.minimum == values.maximum)
    problems->push_back(concat("every voxel has the same value, ", shortest(values.minimum)));
}

void judge_spacing(const VolumeInfo& info, std::vector<std::string>* problems) {
  constexpr double kOddRatio = 10, kTolerance = 1e-2;
  if (info.format == "nifti" && !info.affine)
    problems->push_back("the header does not say how the axes lie in the world (no usable sform or qform)");
  if (info.format == "nifti" && !info.spacing) problems->push_back("the header gives no usable spacing (pixdim)");
  if (!info.spacing) return;
  const Spacing3& spacing = *info.spacing;
  const double least = std::min({spacing.z_mm, spacing.y_mm, spacing.x_mm});
  const double most = std::max({spacing.z_mm, spacing.y_mm, spacing.x_mm});
  if (!(least > 0) || !std::isfinite(most)) {
    problems->push_back(concat("the spacing ", spacing, " mm is not positive"));
    return;
  }
  if (most / least > kOddRatio)
    problems->push_back(concat("the spacing ", spacing, " mm differs more than tenfold between axes; is it right?"));
  if (!info.affine) return;
  for (int axis = 0; axis < 3; ++axis) {
    const size_t column = static_cast<size_t>(2 - axis);
    const Affine& m = *info.affine;
    const double length = std::hypot(m[0][column], m[1][column], m[2][column]);
    if (std::abs(length - spacing[axis]) <= kTolerance * length) continue;
    problems->push_back(concat("the spacing ", spacing, " mm of the header is not that of its affine (", length,
                               " mm along ", "zyx"[axis], ")"));
    return;
  }
}

}  // namespace

VolumeFacts inspect_volume(const std::string& name, ThreadPool& pool) {
  const auto reader = open_volume(name);
  VolumeFacts facts;
  facts.info = reader->info();
  const VolumeInfo& info = facts.info;
  const int64_t thickness = slab_thickness(info), slice_voxels = info.extent.y * info.extent.x;
  Buffer slab(thickness * slice_voxels * size_of(info.dtype));
  Moments stored;
  LabelCounter labels;
  for (int64_t channel = 0; channel < info.channels; ++channel) {
    for (int64_t z = 0; z < info.extent.z; z += thickness) {
      const Box3 box{{z, 0, 0}, {std::min(z + thickness, info.extent.z), info.extent.y, info.extent.x}};
      reader->read(box, channel, slab.data(), &pool);
      const SlabFacts part = inspect_slab(slab.data(), info, box.voxels(), !labels.gave_up(), pool);
      stored.merge(part.moments, channel * info.extent.voxels() + z * slice_voxels);
      labels.merge(part.labels);
    }
  }
  facts.values = stored.mapped(info.scale, info.offset);
  if (!labels.gave_up()) facts.labels = labels.counts();
  judge_values(facts, &facts.problems);
  judge_spacing(info, &facts.problems);
  return facts;
}

}  // namespace vox::cli
