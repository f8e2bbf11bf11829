// The GPU's gather against the CPU's, bit for bit.
#include "kernels/gather_cuda.h"

#include <gtest/gtest.h>

#include "base/cuda_test_effort.h"
#include "base/random.h"
#include "kernels/cuda_test_memory.h"

namespace vox::cuda {
namespace {

constexpr DType kStoredTypes[] = {DType::kUInt8,  DType::kInt8,  DType::kUInt16,  DType::kInt16,
                                  DType::kUInt32, DType::kInt32, DType::kFloat32, DType::kFloat64};

Volume random_volume(DType dtype, const Extent3& extent, Random& random) {
  Volume volume = allocate_volume({.dtype = dtype, .extent = extent});
  with_type(dtype, [&](auto typed) {
    using T = decltype(typed);
    T* data = volume.data.as<T>();
    for (int64_t i = 0; i < extent.voxels(); ++i)
      data[i] = std::is_floating_point_v<T> ? static_cast<T>(100 * random.normal()) : static_cast<T>(random.bits() % 7);
  });
  if (random.chance(0.5)) volume.info.scale = 0.37, volume.info.offset = -0.55;
  return volume;
}

GatherMap random_map(const Extent3& volume, const Extent3& output, bool whole, Random& random) {
  GatherMap map;
  int order[3] = {0, 1, 2};
  for (int i = 2; i > 0; --i) std::swap(order[i], order[random.below(i + 1)]);
  for (int axis = 0; axis < 3; ++axis) {
    double corner = static_cast<double>(volume[axis]) * random.uniform(0, 1);
    for (int out = 0; out < 3; ++out) {
      const double turned = (axis == out ? 0.8 : 0.0) + random.uniform(-0.6, 0.6);
      const double moved = out != order[axis] ? 0 : random.chance(0.5) ? 1 : -1;
      map.matrix[axis][out] = static_cast<float>(whole ? moved : turned);
      corner -= static_cast<double>(map.matrix[axis][out]) * static_cast<double>(output[out]) / 2;
    }
    map.origin[axis] = static_cast<int64_t>(std::floor(corner));
    map.offset[axis] = whole ? 0.0f : static_cast<float>(corner - std::floor(corner));
  }
  return map;
}

std::shared_ptr<const Deformation> random_deformation(const Extent3& output, Random& random) {
  auto deformation = std::make_shared<Deformation>();
  if (random.chance(0.8)) {
    ControlGrid& grid = deformation->grid;
    for (int axis = 0; axis < 3; ++axis) {
      grid.spacing[axis] = static_cast<float>(random.uniform(1, 12));
      grid.points[axis] = covering_points(output[axis], grid.spacing[axis]);
    }
    for (auto& shift : grid.shift) {
      shift.resize(static_cast<size_t>(grid.points.voxels()));
      for (float& value : shift) value = static_cast<float>(2 * random.normal());
    }
  }
  if (random.chance(0.5))
    for (int64_t z = 0; z < output.z; ++z) {
      deformation->section_y.push_back(static_cast<float>(random.below(9) - 4));
      deformation->section_x.push_back(static_cast<float>(random.below(9) - 4));
    }
  return deformation;
}

struct Result {
  std::vector<std::byte> cpu, gpu;
};

// From the box that the map reads alone, at a stride that other channels leave.
Result gather_both(const Volume& volume, const GatherMap& map, const Extent3& extent, DType type, int64_t stride,
                   const GatherOptions& options) {
  VolumeView view = view_of(volume);
  const int64_t bytes = extent.voxels() * stride * size_of(type);
  Result result{std::vector<std::byte>(static_cast<size_t>(bytes), std::byte{0x7f}), {}};
  gather_cpu({.data = result.cpu.data(), .dtype = type, .extent = extent, .voxel_stride = stride}, view, map, options);
  const at::Tensor voxels = device_bytes(volume.data.data(), volume.info.bytes());
  at::Tensor out = at::full({bytes}, 0x7f, at::TensorOptions(at::kCUDA).dtype(at::kByte)), tables;
  view.data = static_cast<const std::byte*>(voxels.data_ptr());
  if (map.deformation) {
    std::vector<float> values(static_cast<size_t>(deformation_values(*map.deformation)));
    write_deformation(*map.deformation, values.data());
    tables = device_bytes(values.data(), static_cast<int64_t>(values.size() * sizeof(float)));
  }
  const float* deformation = tables.defined() ? static_cast<const float*>(tables.data_ptr()) : nullptr;
  gather(gather_task({.data = out.data_ptr(), .dtype = type, .extent = extent, .voxel_stride = stride}, view, map,
                     options, deformation),
         nullptr);
  result.gpu = host_bytes(out);
  return result;
}

TEST(GatherCuda, EqualsTheCpuBitForBit) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
  const uint64_t seed = drawn_seed();
  int64_t cases = 0;
  for (const DType stored : kStoredTypes)
    for (const Padding padding : {Padding::kConstant, Padding::kEdge, Padding::kReflect})
      for (const Interpolation how : {Interpolation::kLinear, Interpolation::kNearest, Interpolation::kLabel})
        for (uint64_t trial = 0; trial < (small_tests() ? 2 : 9); ++trial) {
          Random random(
              seed, trial,
              static_cast<uint32_t>(stored) * 16 + static_cast<uint32_t>(padding) * 4 + static_cast<uint32_t>(how));
          const Extent3 size{5 + random.below(30), 5 + random.below(30), 5 + random.below(40)};
          const Extent3 extent{1 + random.below(12), 1 + random.below(20), 1 + random.below(150)};
          const DType type = trial % 3 == 0 ? DType::kFloat32 : trial % 3 == 1 ? DType::kBFloat16 : DType::kUInt8;
          const Volume volume = random_volume(stored, size, random);
          GatherMap map = random_map(size, extent, trial % 4 == 3, random);
          if (trial % 2 == 1) map.deformation = random_deformation(extent, random);
          const GatherOptions options{how, padding, static_cast<float>(random.below(4))};
          const Result result = gather_both(volume, map, extent, type, 1 + random.below(3), options);
          ASSERT_TRUE(result.cpu == result.gpu)
              << "seed " << seed << ", " << name_of(stored) << " to " << name_of(type) << ", trial " << trial
              << ", padding " << static_cast<int>(padding) << ", interpolation " << static_cast<int>(how);
          ++cases;
        }
  std::cout << "seed " << seed << ": " << cases << " gathers equal to the bit\n";
}

// The patch of the scroll recipe, turned and bent: what a step pays.
TEST(GatherCuda, TimeOfAPatch) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
  Random random(3, 0, 0);
  const Extent3 size{160, 256, 256}, extent{72, 136, 136};
  const Volume volume = random_volume(DType::kUInt8, size, random);
  const at::Tensor voxels = device_bytes(volume.data.data(), volume.info.bytes());
  VolumeView view = view_of(volume);
  view.data = static_cast<const std::byte*>(voxels.data_ptr());
  GatherMap map = random_map(size, extent, false, random);
  auto bent = std::make_shared<Deformation>();
  for (int axis = 0; axis < 3; ++axis) {
    bent->grid.spacing[axis] = 24;
    bent->grid.points[axis] = covering_points(extent[axis], 24);
  }
  for (auto& shift : bent->grid.shift) shift.assign(static_cast<size_t>(bent->grid.points.voxels()), 1.5f);
  std::vector<float> values(static_cast<size_t>(deformation_values(*bent)));
  write_deformation(*bent, values.data());
  const at::Tensor tables = device_bytes(values.data(), static_cast<int64_t>(values.size() * sizeof(float)));
  at::Tensor image = at::empty({extent.voxels()}, at::TensorOptions(at::kCUDA).dtype(at::kFloat));
  for (const bool deformed : {false, true})
    for (const Interpolation how : {Interpolation::kLinear, Interpolation::kNearest, Interpolation::kLabel}) {
      map.deformation = deformed ? bent : nullptr;
      const GatherTask task = gather_task({.data = image.data_ptr(), .extent = extent}, view, map, {how},
                                          static_cast<const float*>(tables.data_ptr()));
      const double ms = milliseconds_of(200, [&] { gather(task, nullptr); });
      std::cout << "gather 72x136x136 uint8 " << (deformed ? "bent   " : "affine ")
                << (how == Interpolation::kLinear    ? "linear  "
                    : how == Interpolation::kNearest ? "nearest "
                                                     : "label   ")
                << 1000 * ms << " us\n";
      EXPECT_LT(ms, 0.5);
    }
}

}  // namespace
}  // namespace vox::cuda
