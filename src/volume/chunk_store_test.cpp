#include "volume/chunk_store.h"

#include <gtest/gtest.h>

#include <cstring>

#include "volume/test_volumes.h"

namespace vox {
namespace {

constexpr uint64_t kKey = 42;

fs::path write_chunks(const TemporaryFolder& folder, const Volume& volume) {
  const fs::path file = folder / "v.chunks";
  ChunkWriter writer(file, volume.info, kKey);
  const int64_t slice = volume.info.extent.y * volume.info.extent.x * size_of(volume.info.dtype);
  for (int64_t z = 0; z < volume.info.extent.z; z += writer.slab())
    writer.write_slab(z, std::min(z + writer.slab(), volume.info.extent.z), volume.data.data() + z * slice);
  writer.commit();
  return file;
}

void expect_box(const ChunkFile& file, const Volume& volume, const Box3& box) {
  const int64_t element = size_of(volume.info.dtype);
  std::vector<std::byte> out(static_cast<size_t>(box.voxels() * element));
  file.read(box, out.data());
  const Extent3& extent = volume.info.extent;
  const std::byte* place = out.data();
  for (int64_t z = box.begin.z; z < box.end.z; ++z)
    for (int64_t y = box.begin.y; y < box.end.y; ++y) {
      const int64_t row = ((z * extent.y + y) * extent.x + box.begin.x) * element;
      const auto bytes = static_cast<size_t>(box.extent().x * element);
      ASSERT_EQ(std::memcmp(place, volume.data.data() + row, bytes), 0) << box << " at z=" << z << " y=" << y;
      place += bytes;
    }
}

void expect_mapped(const ChunkFile& file, const Volume& volume, const Box3& box) {
  const MappedBox mapped = file.map(box);
  const Extent3& extent = volume.info.extent;
  const int64_t row = extent.x * size_of(volume.info.dtype);
  for (int64_t z = box.begin.z; z < box.end.z; ++z) {
    const std::byte* expected = volume.data.data() + (z * extent.y + box.begin.y) * row;
    const std::byte* got = mapped.data + (z - box.begin.z) * extent.y * row;
    ASSERT_EQ(std::memcmp(got, expected, static_cast<size_t>(box.extent().y * row)), 0) << box << " at z=" << z;
  }
}

void expect_random_boxes(const ChunkFile& file, const Volume& volume) {
  Random random(1, 0, 2);
  const Extent3& extent = volume.info.extent;
  for (int n = 0; n < 25; ++n) {
    Box3 box;
    for (int axis = 0; axis < 3; ++axis) {
      box.begin[axis] = random.below(extent[axis]);
      box.end[axis] = box.begin[axis] + 1 + random.below(extent[axis] - box.begin[axis]);
    }
    expect_box(file, volume, box);
    if (file.dense()) expect_mapped(file, volume, box);
  }
  expect_box(file, volume, whole(extent));
}

TEST(ChunkStore, AnyBoxOfAnyTypeReadsBack) {
  for (const Extent3& extent : {Extent3{50, 130, 70}, Extent3{1, 1, 1}, Extent3{3, 70, 900}}) {
    const TemporaryFolder folder;
    Volume noise = noise_volume<uint8_t>(extent, 1, 0, 256);
    noise.info.scale = 0.5, noise.info.offset = -3;
    const ChunkFile file(write_chunks(folder, noise), kKey);
    expect_random_boxes(file, noise);
    EXPECT_EQ(file.info().scale, 0.5);
    EXPECT_EQ(file.info().offset, -3);
    const TemporaryFolder other;
    const Volume real = noise_volume<float>(extent, 2, -1, 1);
    expect_random_boxes(ChunkFile(write_chunks(other, real), kKey), real);
  }
}

TEST(ChunkStore, WideLabelsTakeLittleSpaceAndReadBack) {
  const TemporaryFolder folder;
  const Extent3 extent{12, 100, 600};
  const Volume label = make_volume<uint8_t>(extent, [&](int64_t v) {
    return v / 120 % 40 == 3 ? 1 : v > 500000 ? 2 : 0;
  });
  const fs::path path = write_chunks(folder, label);
  EXPECT_LT(fs::file_size(path), static_cast<uintmax_t>(extent.voxels() / 10));
  expect_random_boxes(ChunkFile(path, kKey), label);
}

TEST(ChunkStore, AnyFlippedByteIsNoticed) {
  const TemporaryFolder folder;
  const Volume noise = noise_volume<uint8_t>({20, 40, 40}, 1, 0, 256);
  const fs::path path = write_chunks(folder, noise);
  const std::string good = read_file(path);
  Random random(9, 0, 1);
  for (int n = 0; n < 60; ++n) {
    std::string bad = good;
    // Header and index, or voxels; what lies between is filler that nobody reads.
    const int64_t voxels = static_cast<int64_t>(bad.size()) - noise.info.bytes();
    const auto at = static_cast<size_t>(n < 30 ? random.below(sizeof(ChunkHeader) + sizeof(ChunkEntry))
                                               : voxels + random.below(noise.info.bytes()));
    bad[at] = static_cast<char>(bad[at] ^ (1 << random.below(8)));
    write_file(path, bad);
    std::vector<std::byte> out(static_cast<size_t>(noise.info.bytes()));
    EXPECT_THROW(ChunkFile(path, kKey).read(whole(noise.info.extent), out.data()), DamagedChunks) << "byte " << at;
  }
  write_file(path, good.substr(0, good.size() - 1));
  EXPECT_THROW(ChunkFile(path, kKey), DamagedChunks);
  write_file(path, good);
  EXPECT_THROW(ChunkFile(path, kKey + 1), DamagedChunks) << "another content's file";
}

}  // namespace
}  // namespace vox
