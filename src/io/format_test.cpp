// Every format in the list is held to the same promises; a new line in formats.list is tested the day it is added.
#include "io/format.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <functional>
#include <iostream>
#include <random>

#include "base/drawn_seed.h"
#include "base/error.h"
#include "base/file.h"
#include "base/random.h"
#include "base/thread_pool.h"

namespace vox {
namespace {

constexpr DType kStoredTypes[] = {DType::kUInt8,  DType::kInt8,  DType::kUInt16,  DType::kInt16,
                                  DType::kUInt32, DType::kInt32, DType::kFloat32, DType::kFloat64};

// In memory where that can be: hundreds of small files measure the disk, not us.
fs::path fast_folder() {
  return fs::is_directory("/dev/shm") ? fs::path("/dev/shm") : fs::temp_directory_path();
}

class Formats : public testing::Test {
 protected:
  Formats() : folder_(fast_folder() / concat("voxloom-formats-", std::random_device{}())) {
    fs::create_directories(folder_);
    std::cout << "seed " << seed_ << '\n';
  }
  ~Formats() override {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }

  Volume random_volume(DType dtype, int64_t channels) {
    return random_volume(dtype, channels, {1 + random_.below(9), 1 + random_.below(40), 1 + random_.below(40)});
  }
  Volume random_volume(DType dtype, int64_t channels, const Extent3& extent) {
    VolumeInfo info;
    info.dtype = dtype;
    info.channels = channels;
    info.extent = extent;
    Volume volume = allocate_volume(info);
    with_type(dtype, [&](auto zero) {
      using T = decltype(zero);
      for (int64_t i = 0; i < info.voxels(); ++i) {  // few values in stretches, so that packing has something to do
        const bool extreme = random_.chance(0.1);
        volume.data.as<T>()[i] = extreme ? std::numeric_limits<T>::max() : static_cast<T>(random_.below(5));
      }
    });
    return volume;
  }

  std::string file_name(const std::string& suffix) { return (folder_ / ("volume" + suffix)).string(); }

  // Calls test(entry, path, options) once for each suffix and codec that go together, default codec included.
  using FileTest = std::function<void(const FormatEntry&, const std::string&, const WriteOptions&)>;
  void for_each_kind_of_file(const FileTest& test) {
    for (const FormatEntry& entry : all_formats()) {
      if (entry.write == nullptr) continue;
      std::vector<std::string> codecs{""};
      codecs.insert(codecs.end(), entry.codecs.begin(), entry.codecs.end());
      for (const std::string& codec : codecs) {
        int accepted = 0;
        for (const std::string& suffix : entry.suffixes) {
          SCOPED_TRACE(concat(entry.name, " ", suffix, " codec \"", codec, "\""));
          const WriteOptions options{.codec = codec};
          if (!can_write(entry, file_name(suffix), options)) continue;
          ++accepted;
          test(entry, file_name(suffix), options);
        }
        EXPECT_GT(accepted, 0) << entry.name << " lists codec \"" << codec << "\", but no suffix takes it";
      }
    }
  }

  // Some suffixes settle the codec (.nii, .nii.gz): such a pair is refused by an Error, whatever the voxels.
  bool can_write(const FormatEntry& entry, const std::string& path, const WriteOptions& options) {
    fs::remove_all(path);
    try {
      entry.write(path, random_volume(DType::kUInt8, 1), options, nullptr);
      return true;
    } catch (const Error& error) {
      EXPECT_FALSE(options.codec.empty()) << error.what();
      EXPECT_FALSE(fs::exists(path)) << "refused, but written";
      return false;
    }
  }

  const uint64_t seed_ = drawn_seed();
  Random random_{seed_, 0, 0};
  const fs::path folder_;
};

// Without write_file's sync to the disk, which hundreds of damaged copies need not survive a power cut for.
void put(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << content;
}

// The file to damage: the volume itself, or for a folder any file in it.
std::string a_file_of(const std::string& path, Random& random) {
  if (!fs::is_directory(path)) return path;
  std::vector<std::string> files;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(path))
    if (entry.is_regular_file()) files.push_back(entry.path().string());
  std::sort(files.begin(), files.end());
  return files[static_cast<size_t>(random.below(static_cast<int64_t>(files.size())))];
}

void expect_same_voxels(const Volume& expected, const Volume& got) {
  ASSERT_EQ(got.info.dtype, expected.info.dtype);
  ASSERT_EQ(got.info.extent, expected.info.extent);
  ASSERT_EQ(got.info.channels, expected.info.channels);
  EXPECT_EQ(std::memcmp(got.data.data(), expected.data.data(), static_cast<size_t>(expected.info.bytes())), 0);
}

TEST_F(Formats, NamesAndSuffixesAreUniqueAndHelpIsGiven) {
  std::vector<std::string> seen;
  for (const FormatEntry& entry : all_formats()) {
    EXPECT_FALSE(entry.help.empty()) << entry.name;
    EXPECT_FALSE(entry.suffixes.empty()) << entry.name;
    seen.push_back(entry.name);
    seen.insert(seen.end(), entry.suffixes.begin(), entry.suffixes.end());
  }
  std::sort(seen.begin(), seen.end());
  EXPECT_EQ(std::adjacent_find(seen.begin(), seen.end()), seen.end());
}

TEST_F(Formats, SlabsOfAnyThicknessComeBackAsOneVolume) {
  ThreadPool pool(2);
  int tested = 0;
  for_each_kind_of_file([&](const FormatEntry& entry, const std::string& path, const WriteOptions& options) {
    if (entry.write_slabs == nullptr) return;
    ++tested;
    const Volume volume = random_volume(DType::kUInt16, 1 + random_.below(3));
    const VolumeInfo& info = volume.info;
    const int64_t slice_bytes = info.extent.y * info.extent.x * size_of(info.dtype);
    Volume slab;
    SlabSource source{.info = info, .slices = 1 + random_.below(info.extent.z)};
    source.read = [&](int64_t z_begin, int64_t z_end) -> const Volume& {
      VolumeInfo part = info;
      part.extent.z = z_end - z_begin;
      slab = allocate_volume(part);
      for (int64_t channel = 0; channel < info.channels; ++channel)
        std::memcpy(slab.data.data() + channel * part.extent.z * slice_bytes,
                    volume.data.data() + (channel * info.extent.z + z_begin) * slice_bytes,
                    static_cast<size_t>(part.extent.z * slice_bytes));
      return slab;
    };
    WriteOptions thin = options;
    if (entry.name != "tiff") thin.chunk = {1 + random_.below(3), 16, 16};  // several chunks along z
    fs::remove_all(path);
    write_slabs(path, source, thin, &pool);
    expect_same_voxels(volume, read_volume(path));
  });
  EXPECT_GT(tested, 2);
}

// Around one and two chunks of the default size and beyond, along each axis.
TEST_F(Formats, WholeVolumesOfSeveralChunksComeBack) {
  constexpr int64_t kChunk = 64;
  const std::vector<int64_t> lengths{kChunk - 1,     kChunk,         kChunk + 1,
                                     2 * kChunk - 1, 2 * kChunk + 1, kChunk + 1 + random_.below(3 * kChunk)};
  ThreadPool pool(2);
  for (const FormatEntry& entry : all_formats()) {
    if (entry.write == nullptr) continue;
    const std::string path = file_name(entry.suffixes.front());
    for (const int64_t length : lengths) {
      for (int axis = 0; axis < 3; ++axis) {
        Extent3 extent{1 + random_.below(5), 1 + random_.below(5), 1 + random_.below(5)};
        extent[axis] = length;
        SCOPED_TRACE(concat(entry.name, " ", extent));
        const Volume volume = random_volume(DType::kUInt8, 1, extent);
        write_volume(path, volume, {}, &pool);
        expect_same_voxels(volume, read_volume(path));
      }
    }
    fs::remove_all(path);
  }
}

TEST_F(Formats, ASlabOfAnotherSizeThanAskedForIsNeverWritten) {
  const Volume volume = random_volume(DType::kUInt8, 1, {10, 3, 3});
  SlabSource source = slabs_of(volume);
  source.slices = 4;
  for (const FormatEntry& entry : all_formats()) {
    if (entry.write_slabs == nullptr) continue;
    const std::string path = file_name(entry.suffixes.front());
    EXPECT_THROW(write_slabs(path, source, {.chunk = {1, 3, 3}}, nullptr), Error) << entry.name;
    EXPECT_FALSE(fs::exists(path)) << entry.name;
  }
}

TEST_F(Formats, EveryTypeComesBackAsItWasWritten) {
  ThreadPool pool(2);
  for_each_kind_of_file([&](const FormatEntry& entry, const std::string& path, const WriteOptions& options) {
    const std::vector<DType> all(std::begin(kStoredTypes), std::end(kStoredTypes));
    for (const DType dtype : entry.types.empty() ? all : entry.types) {
      SCOPED_TRACE(name_of(dtype));
      const Volume volume = random_volume(dtype, 1);
      write_volume(path, volume, options, &pool);
      const Volume back = read_volume(path, &pool);
      expect_same_voxels(volume, back);
      EXPECT_EQ(back.info.format, entry.name);
    }
  });
}

TEST_F(Formats, ChannelsComeBackOrAreRefused) {
  for_each_kind_of_file([&](const FormatEntry&, const std::string& path, const WriteOptions& options) {
    const Volume volume = random_volume(DType::kUInt16, 3);
    try {
      write_volume(path, volume, options);
    } catch (const Error&) {
      return;
    }
    expect_same_voxels(volume, read_volume(path));
  });
}

TEST_F(Formats, ABoxEqualsThatPartOfTheWhole) {
  for_each_kind_of_file([&](const FormatEntry&, const std::string& path, const WriteOptions& options) {
    const Volume volume = random_volume(DType::kUInt16, 1);
    write_volume(path, volume, options);
    const auto reader = open_volume(path);
    const Extent3 extent = volume.info.extent;
    for (int repeat = 0; repeat < 20; ++repeat) {
      Box3 box;
      for (int axis = 0; axis < 3; ++axis) {
        box.begin[axis] = random_.below(extent[axis]);
        box.end[axis] = box.begin[axis] + 1 + random_.below(extent[axis] - box.begin[axis]);
      }
      std::vector<uint16_t> part(static_cast<size_t>(box.voxels())), expected;
      reader->read(box, 0, reinterpret_cast<std::byte*>(part.data()));
      for (int64_t z = box.begin.z; z < box.end.z; ++z)
        for (int64_t y = box.begin.y; y < box.end.y; ++y)
          for (int64_t x = box.begin.x; x < box.end.x; ++x)
            expected.push_back(volume.as<uint16_t>()[(z * extent.y + y) * extent.x + x]);
      ASSERT_EQ(part, expected) << box << " of " << extent;
    }
  });
}

TEST_F(Formats, ManyThreadsReadOneReaderAtOnce) {
  ThreadPool pool(4);
  for_each_kind_of_file([&](const FormatEntry&, const std::string& path, const WriteOptions& options) {
    const Volume volume = random_volume(DType::kUInt8, 1);
    write_volume(path, volume, options);
    const auto reader = open_volume(path);
    const Extent3 extent = volume.info.extent;
    const int64_t slice = extent.y * extent.x;
    pool.for_each(40, [&](int64_t i) {
      const int64_t z = i * 7 % extent.z;
      std::vector<std::byte> got(static_cast<size_t>(slice));
      reader->read({{z, 0, 0}, {z + 1, extent.y, extent.x}}, 0, got.data());
      EXPECT_EQ(std::memcmp(got.data(), volume.data.data() + z * slice, got.size()), 0) << "slice " << z;
    });
  });
}

// A last byte that only pads (TIFF) may be lost: then every voxel is still there.
bool cut_is_noticed(const std::string& path, const Volume& written) {
  try {
    const Volume back = read_volume(path);
    return back.info.extent == written.info.extent && back.info.dtype == written.info.dtype &&
           std::memcmp(back.data.data(), written.data.data(), static_cast<size_t>(written.info.bytes())) == 0;
  } catch (const Error& error) {
    return error.fault() == Fault::kInput;
  }
}

TEST_F(Formats, AFileCutAnywhereIsAnErrorUnlessNoVoxelIsLost) {
  for_each_kind_of_file([&](const FormatEntry&, const std::string& path, const WriteOptions& options) {
    const Volume volume = random_volume(DType::kUInt16, 1);
    write_volume(path, volume, options);
    for (int repeat = 0; repeat < 25; ++repeat) {
      const std::string file = a_file_of(path, random_), complete = read_file(file);
      const int64_t size = static_cast<int64_t>(complete.size());
      const int64_t kept = repeat == 0 ? 0 : repeat == 1 ? size - 1 : random_.below(size);
      put(file, complete.substr(0, static_cast<size_t>(kept)));
      EXPECT_TRUE(cut_is_noticed(path, volume)) << kept << " of " << size << " bytes of " << file;
      put(file, complete);
    }
  });
}

TEST_F(Formats, AChangedByteNeverCrashesNorAsksForMoreMemoryThanTheFileCanFill) {
  constexpr int64_t kMostExpansion = 5000;  // lzw: 12 bits stand for at most 4096 bytes; deflate 1032:1
  for_each_kind_of_file([&](const FormatEntry& entry, const std::string& path, const WriteOptions& options) {
    write_volume(path, random_volume(DType::kUInt16, 1), options);
    // Where chunks that were never written count as zeros, a small file may rightly claim any size.
    const bool sparse = entry.name == "zarr" || entry.name == "hdf5";
    constexpr int64_t kEnough = 64 << 20;
    for (int repeat = 0; repeat < 60; ++repeat) {
      const std::string file = a_file_of(path, random_), complete = read_file(file);
      std::string damaged = complete;
      const int64_t reach = repeat % 2 == 0 ? 400 : static_cast<int64_t>(damaged.size());
      const int64_t place = random_.below(std::min(reach, static_cast<int64_t>(damaged.size())));
      damaged[static_cast<size_t>(place)] = static_cast<char>(random_.below(256));
      put(file, damaged);
      try {
        const auto reader = open_volume(path);
        if (!sparse) {
          ASSERT_LE(reader->info().bytes(), kMostExpansion * static_cast<int64_t>(damaged.size())) << "byte " << place;
        }
        if (reader->info().bytes() < kEnough) read_volume(path);
      } catch (const Error& error) {
        EXPECT_NE(error.fault(), Fault::kBug) << error.what();
      }
      put(file, complete);
    }
  });
}

TEST_F(Formats, WhatIsNoVolumeIsRefusedByASentence) {
  const auto message = [](const std::string& name) {
    try {
      open_volume(name);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("opened");
  };
  const std::string missing = file_name(".nowhere");
  EXPECT_NE(message(missing).find("no such file"), std::string::npos);
  EXPECT_NE(message(folder_.string()).find("folder"), std::string::npos);
  write_file(file_name(".txt"), "no volume at all");
  EXPECT_NE(message(file_name(".txt")).find(".nii.gz"), std::string::npos) << message(file_name(".txt"));
  write_file(file_name(".npy"), "");
  EXPECT_NE(message(file_name(".npy")).find("empty"), std::string::npos);
}

TEST_F(Formats, AFileWhoseFullNameExistsWinsOverADataset) {
  const std::string plain = file_name(".npy"), with_colon = plain + ":labels.npy";
  const Volume first = random_volume(DType::kUInt8, 1), second = random_volume(DType::kUInt8, 1);
  write_volume(plain, first);
  EXPECT_THROW(open_volume(with_colon), Error);  // .npy files have no datasets
  write_volume(with_colon, second);
  expect_same_voxels(second, read_volume(with_colon));
  expect_same_voxels(first, read_volume(plain));
}

TEST_F(Formats, ScaleIsKeptOrRefused) {
  Volume volume = random_volume(DType::kUInt8, 1);
  volume.info.scale = 0.5;
  volume.info.offset = -3;
  for (const FormatEntry& entry : all_formats()) {
    if (entry.write == nullptr) continue;
    const std::string path = file_name(entry.suffixes.front());
    if (!entry.keeps_scale) {
      EXPECT_THROW(write_volume(path, volume), Error) << entry.name;
      continue;
    }
    write_volume(path, volume);
    const Volume back = read_volume(path);
    EXPECT_EQ(back.info.scale, 0.5);
    EXPECT_EQ(back.info.offset, -3);
  }
}

}  // namespace
}  // namespace vox
