// What every metric of label volumes needs: the check that two can be compared, and reading one whole.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "metrics/metric.h"

namespace vox {

void require_comparable(const VolumeSource& prediction, const VolumeSource& reference);

// Slices read at once: whole chunks of the file where it has any, so that none is decoded twice.
int64_t slab_height(const VolumeInfo& info);
// Calls slab(box, voxels) for slabs that cover the volume, on the pool's threads; voxels are in info.dtype.
void for_each_slab(const VolumeSource& source, ThreadPool& pool,
                   const std::function<void(const Box3& box, const std::byte* voxels)>& slab);

// Labels are whole numbers from 0 to what the type holds. Error names the value that is none.
std::vector<uint16_t> read_class_labels(const VolumeSource& source, ThreadPool& pool);
std::vector<uint32_t> read_instance_labels(const VolumeSource& source, ThreadPool& pool);
// 1 where the value is not 0. Error where a value is NaN, or lies between 0 and 1: a probability is no mask.
std::vector<uint8_t> read_mask(const VolumeSource& source, ThreadPool& pool);
// 1 where the value is `label`.
std::vector<uint8_t> read_where(const VolumeSource& source, double label, ThreadPool& pool);

}  // namespace vox
