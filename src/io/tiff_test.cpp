// What other programs write is read in tests/test_tiff.py; here: boxes, headers that lie, damage, and our own writer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <fstream>

#include "base/error.h"
#include "base/file.h"
#include "base/random.h"
#include "base/thread_pool.h"
#include "io/format.h"
#include "io/tiff_metadata.h"
#include "io/tiff_writer.h"

namespace vox {

FormatEntry tiff_format();

namespace {

const std::vector<std::string> kCodecNames{"none", "lzw", "deflate", "zstd", "packbits"};

class Tiff : public testing::Test {
 protected:
  Tiff() : folder_(fs::path(testing::TempDir()) / concat("vox_tiff_", getpid())) { make_folders(folder_); }
  ~Tiff() override { fs::remove_all(folder_); }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  static Volume random_volume(const Extent3& extent, DType dtype, uint64_t seed, int64_t channels = 1) {
    VolumeInfo info;
    info.dtype = dtype;
    info.extent = extent;
    info.channels = channels;
    Volume volume = allocate_volume(info);
    Random random(seed, 0, 0);
    for (int64_t i = 0; i < volume.data.size(); ++i)
      volume.data.data()[i] = static_cast<std::byte>(random.chance(0.5) ? 0 : random.below(256));
    return volume;
  }
  static std::vector<std::byte> read_box(const VolumeReader& reader, const Box3& box, int64_t channel = 0,
                                         ThreadPool* pool = nullptr) {
    std::vector<std::byte> out(static_cast<size_t>(box.voxels() * size_of(reader.info().dtype)));
    reader.read(box, channel, out.data(), pool);
    return out;
  }
  static std::vector<std::byte> cut(const Volume& volume, const Box3& box, int64_t channel = 0) {
    const int64_t size = size_of(volume.info.dtype);
    const Extent3& e = volume.info.extent;
    std::vector<std::byte> out;
    for (int64_t z = box.begin.z; z < box.end.z; ++z)
      for (int64_t y = box.begin.y; y < box.end.y; ++y) {
        const std::byte* row = volume.data.data() + (((channel * e.z + z) * e.y + y) * e.x + box.begin.x) * size;
        out.insert(out.end(), row, row + box.extent().x * size);
      }
    return out;
  }
  static Box3 random_box(const Extent3& extent, Random& random) {
    Box3 box;
    for (int axis = 0; axis < 3; ++axis) {
      box.begin[axis] = random.below(extent[axis]);
      box.end[axis] = box.begin[axis] + 1 + random.below(extent[axis] - box.begin[axis]);
    }
    return box;
  }
  std::string error_of(const std::string& file) const {
    try {
      const auto reader = tiff_format().open(file);
      read_box(*reader, whole(reader->info().extent));
    } catch (const Error& error) {
      EXPECT_EQ(error.fault(), Fault::kInput) << error.what();
      EXPECT_NE(std::string(error.what()).find(file), std::string::npos) << error.what();
      return error.what();
    }
    return "";
  }

  // Unlike write_file, does not wait for the disk; nor may the old file be cut in place, for which ext4 waits too.
  void put(const std::string& name, const std::string& bytes) const {
    fs::remove(path(name));
    std::ofstream(path(name), std::ios::binary) << bytes;
  }

  fs::path folder_;
};

TEST_F(Tiff, EveryTypeAndCodecComesBackWholeAndInBoxes) {
  ThreadPool pool(2);
  uint64_t seed = 0;
  for (const DType dtype : {DType::kUInt8, DType::kInt8, DType::kUInt16, DType::kInt16, DType::kUInt32, DType::kInt32,
                            DType::kFloat32, DType::kFloat64}) {
    for (const std::string& codec : kCodecNames) {
      const Volume volume = random_volume({3, 41, 29}, dtype, ++seed);
      const WriteOptions options{.codec = codec, .chunk = {0, 7, 0}};
      tiff_format().write(path("a.tif"), volume, options, &pool);
      const auto reader = tiff_format().open(path("a.tif"));
      ASSERT_EQ(reader->info().extent, volume.info.extent);
      ASSERT_EQ(reader->info().dtype, dtype);
      EXPECT_EQ(reader->info().codec, codec);
      Random random(seed, 1, 0);
      for (int trial = 0; trial < 12; ++trial) {
        const Box3 box = trial == 0 ? whole(volume.info.extent) : random_box(volume.info.extent, random);
        ASSERT_EQ(read_box(*reader, box, 0, trial % 2 ? &pool : nullptr), cut(volume, box))
            << codec << ' ' << name_of(dtype) << ' ' << box;
      }
    }
  }
}

TEST_F(Tiff, BigTiffIsWrittenBeyondTheLimitAndReadBack) {
  const Volume volume = random_volume({4, 20, 30}, DType::kUInt16, 1);
  for (const int64_t limit : {int64_t{0}, int64_t{5000}, tiff::kClassicLimit}) {
    tiff::write_stack(path("b.tif"), slabs_of(volume), {.codec = "none"}, nullptr, limit);
    const std::string bytes = read_file(path("b.tif"));
    EXPECT_EQ(bytes[2], limit == tiff::kClassicLimit ? '\x2a' : '\x2b');
    const auto reader = tiff_format().open(path("b.tif"));
    EXPECT_EQ(read_box(*reader, whole(volume.info.extent)), cut(volume, whole(volume.info.extent)));
  }
}

TEST_F(Tiff, SpacingAndChannelsSurvive) {
  Volume volume = random_volume({5, 6, 7}, DType::kFloat32, 2, 3);
  volume.info.spacing = Spacing3{2.5, 0.3, 1.0 / 7};
  tiff_format().write(path("c.tif"), volume, {}, nullptr);
  const auto reader = tiff_format().open(path("c.tif"));
  ASSERT_TRUE(reader->info().spacing);
  for (int axis = 0; axis < 3; ++axis) EXPECT_NEAR((*reader->info().spacing)[axis], (*volume.info.spacing)[axis], 1e-9);
  ASSERT_EQ(reader->info().channels, 3);
  const Box3 box{{1, 2, 3}, {4, 5, 6}};
  for (int64_t channel = 0; channel < 3; ++channel)
    EXPECT_EQ(read_box(*reader, box, channel), cut(volume, box, channel)) << channel;
}

TEST_F(Tiff, RationalsAreNearEnough) {
  for (const double value : {1.0, 0.1, 2.5, 1.0 / 3, 1 / 0.00791, 1e6, 3.3e-7}) {
    const tiff::Rational rational = tiff::nearest_rational(value);
    EXPECT_NEAR(static_cast<double>(rational.numerator) / rational.denominator / value, 1, 1e-9) << value;
  }
}

TEST_F(Tiff, TruncatedFilesAreNamedAtAnyLength) {
  for (const std::string& codec : kCodecNames) {
    tiff_format().write(path("whole.tif"), random_volume({2, 9, 11}, DType::kUInt8, 3), {.codec = codec}, nullptr);
    const std::string bytes = read_file(path("whole.tif"));
    for (size_t length = 0; length + 1 < bytes.size(); length += 1 + length / 40) {
      put("part.tif", bytes.substr(0, length));
      EXPECT_NE(error_of(path("part.tif")), "") << codec << " cut to " << length << " of " << bytes.size();
    }
  }
}

// Replaces the value of `tag` in the directory that starts at `at` (classic, little-endian).
void set_tag(std::string& file, size_t at, uint16_t tag, uint32_t value) {
  uint16_t count = 0;
  std::memcpy(&count, &file[at], 2);
  for (size_t entry = at + 2; count > 0; --count, entry += 12)
    if (std::memcmp(&file[entry], &tag, 2) == 0) std::memcpy(&file[entry + 8], &value, 4);
}

uint32_t word_at(const std::string& file, size_t at) {
  uint32_t value = 0;
  std::memcpy(&value, &file[at], 4);
  return value;
}

TEST_F(Tiff, HeadersThatLieAreRefusedBeforeMemoryIsAskedFor) {
  tiff_format().write(path("whole.tif"), random_volume({2, 9, 11}, DType::kUInt8, 3), {.codec = "lzw"}, nullptr);
  const std::string bytes = read_file(path("whole.tif"));
  const size_t first = word_at(bytes, 4);
  const auto lie = [&](uint16_t tag, uint32_t value) {
    std::string lying = bytes;
    set_tag(lying, first, tag, value);
    put("lie.tif", lying);
    return error_of(path("lie.tif"));
  };
  EXPECT_NE(lie(256, 2000000000), "");
  EXPECT_NE(lie(257, 2000000000), "");
  EXPECT_NE(lie(256, 0), "");
  EXPECT_NE(lie(273, 4000000000u), "");
  EXPECT_NE(lie(279, 4000000000u), "");
  EXPECT_NE(lie(279, 0), "");
  EXPECT_NE(lie(278, 0), "");
  EXPECT_THAT(lie(258, 1), testing::HasSubstr("1-bit"));
  EXPECT_THAT(lie(277, 3), testing::HasSubstr("samples per pixel"));
  EXPECT_THAT(lie(259, 7), testing::HasSubstr("compression 7"));
  EXPECT_THAT(lie(317, 9), testing::HasSubstr("predictor 9"));
  EXPECT_THAT(lie(256, 12), testing::HasSubstr("page 1"));
  EXPECT_THAT(lie(339, 2), testing::HasSubstr("page 1"));
}

TEST_F(Tiff, PagesInACircleAreRefused) {
  tiff_format().write(path("whole.tif"), random_volume({1, 4, 4}, DType::kUInt8, 3), {.codec = "none"}, nullptr);
  std::string bytes = read_file(path("whole.tif"));
  const uint32_t first = word_at(bytes, 4);
  uint16_t count = 0;
  std::memcpy(&count, &bytes[first], 2);
  std::memcpy(&bytes[first + 2 + 12u * count], &first, 4);
  put("circle.tif", bytes);
  EXPECT_THAT(error_of(path("circle.tif")), testing::HasSubstr("circle"));
}

TEST_F(Tiff, ADamagedStripIsNamedByPageAndNumber) {
  const Volume volume = random_volume({3, 8, 16}, DType::kUInt8, 4);
  tiff_format().write(path("whole.tif"), volume, {.codec = "deflate", .chunk = {0, 4, 0}}, nullptr);
  std::string bytes = read_file(path("whole.tif"));
  const auto second = bytes.find("\x78\x9c", bytes.find("\x78\x9c") + 1);  // zlib's header: of page 0, strip 1
  ASSERT_NE(second, std::string::npos);
  bytes[second] = '\x00';
  put("damaged.tif", bytes);
  EXPECT_THAT(error_of(path("damaged.tif")), testing::HasSubstr("page 0, strip 1"));
}

// Random damage to small files of every codec, both layouts of offsets: each reads, or says what is wrong.
TEST_F(Tiff, DamagedFilesReadOrSayWhatIsWrong) {
  int read = 0, refused = 0;
  for (const std::string& codec : kCodecNames) {
    for (const int64_t limit : {int64_t{0}, tiff::kClassicLimit}) {
      const Volume volume = random_volume({2, 12, 10}, DType::kUInt16, 5);
      tiff::write_stack(path("whole.tif"), slabs_of(volume), {.codec = codec, .chunk = {0, 5, 0}}, nullptr, limit);
      const std::string bytes = read_file(path("whole.tif"));
      const auto data_end = static_cast<int64_t>(limit == 0 ? bytes.size() : word_at(bytes, 4));
      Random random(11, static_cast<uint64_t>(limit), 0);
      for (int trial = 0; trial < 500; ++trial) {
        std::string damaged = bytes;
        if (random.chance(0.2)) damaged.resize(static_cast<size_t>(random.below(static_cast<int64_t>(bytes.size()))));
        const int64_t size = static_cast<int64_t>(damaged.size());
        for (int64_t flips = random.below(4); flips >= 0 && size > 0; --flips) {
          const int64_t from = random.chance(0.7) && size > data_end ? data_end : 0;  // mostly the directories
          damaged[static_cast<size_t>(from + random.below(size - from))] = static_cast<char>(random.below(256));
        }
        put("damaged.tif", damaged);
        ++(error_of(path("damaged.tif")).empty() ? read : refused);
      }
    }
  }
  EXPECT_GT(read, 100);
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace vox
