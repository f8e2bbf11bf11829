// The GPU's gather against the CPU's, bit for bit.
#include "kernels/gather_cuda.h"

#include <gtest/gtest.h>

#include "base/cuda_test_effort.h"
#include "base/drawn_seed.h"
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

// Some channels of a sample of one map: volumes of mixed types, whole or as the box that the map reads alone.
struct Channels {
  std::vector<Volume> volumes;
  std::vector<VolumeView> on_host, on_device;
  std::vector<at::Tensor> memory;

  void add(Volume volume) {
    volumes.push_back(std::move(volume));
    memory.push_back(device_bytes(volumes.back().data.data(), volumes.back().info.bytes()));
    on_host.push_back(view_of(volumes.back()));
    on_device.push_back(on_host.back());
    on_device.back().data = static_cast<const std::byte*>(memory.back().data_ptr());
  }
  void keep_box(const Box3& box) {
    for (auto* views : {&on_host, &on_device})
      for (VolumeView& view : *views) {
        view.data += (box.begin.z * view.stride_z + box.begin.y * view.stride_y + box.begin.x) * size_of(view.dtype);
        view.box = box;
      }
  }
};

at::Tensor deformation_on_device(const GatherMap& map) {
  if (!map.deformation) return {};
  std::vector<float> values(static_cast<size_t>(deformation_values(*map.deformation)));
  write_deformation(*map.deformation, values.data());
  return device_bytes(values.data(), static_cast<int64_t>(values.size() * sizeof(float)));
}

struct ChannelsCase {
  Extent3 extent;
  DType type;
  int64_t stride, shift;  // elements: of a voxel, and before the first channel
  GatherMap map;
  GatherOptions options;
};

// NaN, in either type, wherever nothing is written.
Result gather_channels_both(const Channels& channels, const ChannelsCase& one) {
  const int64_t size = size_of(one.type), bytes = (one.extent.voxels() * one.stride + one.shift) * size;
  Result result{std::vector<std::byte>(static_cast<size_t>(bytes), std::byte{0xff}), {}};
  const at::Tensor out = at::full({bytes}, 0xff, at::TensorOptions(at::kCUDA).dtype(at::kByte));
  const at::Tensor tables = deformation_on_device(one.map);
  const float* deformation = tables.defined() ? static_cast<const float*>(tables.data_ptr()) : nullptr;
  std::vector<GatherTask> tasks;
  for (size_t c = 0; c < channels.volumes.size(); ++c) {
    const int64_t first = (one.shift + static_cast<int64_t>(c)) * size;
    GatherOptions options = one.options;
    options.pad_value += static_cast<float>(c);
    const auto output = [&](void* data) {
      return GatherOutput{static_cast<std::byte*>(data) + first, one.type, one.extent, one.stride};
    };
    gather_cpu(output(result.cpu.data()), channels.on_host[c], one.map, options);
    tasks.push_back(gather_task(output(out.data_ptr()), channels.on_device[c], one.map, options, deformation));
  }
  gather(tasks, nullptr);
  result.gpu = host_bytes(out);
  return result;
}

TEST(GatherCuda, ChannelsTogetherEqualTheCpuBitForBit) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
  const uint64_t seed = drawn_seed();
  const uint64_t trials = small_tests() ? 24 : 240;
  for (uint64_t trial = 0; trial < trials; ++trial) {
    Random random(seed, trial, 77);
    const int64_t count = 1 + random.below(20), shortest = trial % 8 == 0 ? 1100 : 1;
    const Extent3 size{5 + random.below(30), 5 + random.below(30), 5 + random.below(40)};
    const Extent3 extent{1 + random.below(12), 1 + random.below(20), shortest + random.below(150)};
    ChannelsCase one{.extent = extent,
                     .type = random.chance(0.5) ? DType::kBFloat16 : DType::kFloat32,
                     .stride = count + (random.chance(0.2) ? random.below(4) : 0),
                     .shift = random.chance(0.5) ? random.below(9) : 0,
                     .map = random_map(size, extent, trial % 2 == 0, random),
                     .options = {random.chance(0.8) ? Interpolation::kLinear : Interpolation::kNearest,
                                 static_cast<Padding>(random.below(3)), static_cast<float>(random.below(4))}};
    if (trial % 4 == 3) one.map.deformation = random_deformation(extent, random);
    if (trial % 4 == 0) one.map = {.origin = {random.below(5) - 2, random.below(5) - 2, 4 * random.below(5) - 8}};
    Channels channels;
    const DType main_type = kStoredTypes[random.below(8)];
    for (int64_t c = 0; c < count; ++c)
      channels.add(random_volume(random.chance(0.5) ? main_type : kStoredTypes[random.below(8)], size, random));
    const Box3 box = read_box(one.map, extent, one.options, size);
    if (random.chance(0.3) && !box.empty()) channels.keep_box(box);
    const Result result = gather_channels_both(channels, one);
    ASSERT_TRUE(result.cpu == result.gpu)
        << "seed " << seed << ", trial " << trial << ": " << count << " channels to " << name_of(one.type)
        << ", voxels " << one.stride << " apart, patch " << extent << " of " << size << ", padding "
        << static_cast<int>(one.options.padding) << ", interpolation " << static_cast<int>(one.options.interpolation);
  }
  std::cout << "seed " << seed << ": " << trials << " samples of 1 to 20 channels equal to the bit\n";
}

// A batch of OpenKBP: eleven channels, as one launch a sample and as one a channel.
TEST(GatherCuda, TimeOfElevenChannels) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
  constexpr int64_t kChannels = 11, kSamples = 2;
  const Extent3 extent{128, 128, 128};
  const at::Tensor voxels =
      at::randint(-1000, 1000, {kSamples * kChannels, extent.voxels()}, at::TensorOptions(at::kCUDA).dtype(at::kShort));
  const at::Tensor image = at::empty({kSamples * kChannels * extent.voxels()}, at::TensorOptions(at::kCUDA));
  const auto tasks_of = [&](const GatherMap& map, DType type, DType stored) {
    std::vector<std::vector<GatherTask>> tasks(kSamples);
    for (int64_t c = 0; c < kSamples * kChannels; ++c) {
      const VolumeView view{.data = static_cast<const std::byte*>(voxels[c].data_ptr()),
                            .dtype = stored,
                            .box = whole(extent),
                            .extent = extent,
                            .stride_z = extent.y * extent.x,
                            .stride_y = extent.x};
      const int64_t first = c / kChannels * kChannels * extent.voxels() + c % kChannels;
      void* out = static_cast<std::byte*>(image.data_ptr()) + first * size_of(type);
      tasks[static_cast<size_t>(c / kChannels)].push_back(gather_task(
          {.data = out, .dtype = type, .extent = extent, .voxel_stride = kChannels}, view, map, {}, nullptr));
    }
    return tasks;
  };
  GatherMap flipped{.origin = {0, 0, 127}}, shifted{.origin = {3, -5, 7}}, turned{.origin = {-9, -13, 0}};
  flipped.matrix[2][2] = -1;
  const float cosine = 0.9f, sine = 0.3f;
  turned.matrix[0][0] = turned.matrix[1][1] = cosine;
  turned.matrix[0][1] = sine, turned.matrix[1][0] = -sine, turned.offset[1] = 0.37f;
  const std::vector<std::pair<const char*, GatherMap>> maps{
      {"identity", {}}, {"flip x", flipped}, {"shift", shifted}, {"affine", turned}};
  for (const DType stored : {DType::kInt16, DType::kUInt8})
    for (const DType type : {DType::kBFloat16, DType::kFloat32})
      for (const auto& [name, map] : maps) {
        const auto tasks = tasks_of(map, type, stored);
        const double together = milliseconds_of(50, [&] {
          for (const auto& sample : tasks) gather(sample, nullptr);
        });
        const double apart = milliseconds_of(20, [&] {
          for (const auto& sample : tasks)
            for (const GatherTask& task : sample) gather(task, nullptr);
        });
        const double bytes =
            static_cast<double>(kSamples * kChannels * extent.voxels() * (size_of(stored) + size_of(type)));
        std::cout << "2x11x128^3 " << name_of(stored) << " to " << name_of(type) << ", " << name << ": together "
                  << 1e3 * together << " us (" << 1e-9 * bytes / together << " TB/s), one by one " << 1e3 * apart
                  << " us\n";
        EXPECT_LT(together, apart);
      }
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
