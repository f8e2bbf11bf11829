#ifdef VOX_HAVE_HDF5
#include "io/hdf5_writer.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/file.h"
#include "base/text.h"
#include "base/thread_pool.h"
#include "io/blosc.h"
#include "io/hdf5_dataset.h"
#include "io/inflate.h"
#include "io/volume_name.h"

namespace vox::h5 {
namespace {

constexpr Extent3 kDefaultChunk{64, 64, 64};
constexpr int kDefaultLevel = 1;
constexpr int64_t kChunksAtOnce = 32;  // packed in memory before they are handed to the library

struct Plan {
  Extent3 chunk;
  bool packed = true;
  int level = kDefaultLevel;
};

Plan make_plan(const std::string& path, const VolumeInfo& info, const WriteOptions& options) {
  VOX_CHECK(options.codec.empty() || options.codec == "gzip" || options.codec == "none", path,
            ": HDF5 chunks cannot be packed by \"", options.codec, "\"; use gzip or none");
  Plan plan;
  plan.packed = options.codec != "none";
  plan.level = options.level < 0 ? kDefaultLevel : options.level;
  VOX_CHECK(plan.level <= 9, path, ": gzip knows the levels 0 to 9, not ", plan.level);
  plan.chunk = min(options.chunk == Extent3{} ? kDefaultChunk : options.chunk, info.extent);
  VOX_CHECK(plan.chunk.voxels() * size_of(info.dtype) < int64_t{1} << 31, path,
            ": a chunk of HDF5 has less than 2 GiB; use smaller chunks");
  return plan;
}

std::vector<std::byte> packed_chunk(const Volume& volume, const Plan& plan, int64_t channel, const Extent3& begin) {
  const VolumeInfo& info = volume.info;
  const int64_t size = size_of(info.dtype);
  std::vector<std::byte> bytes(static_cast<size_t>(plan.chunk.voxels() * size));
  const Extent3 count = min(plan.chunk, info.extent - begin);
  for (int64_t z = 0; z < count.z; ++z) {
    for (int64_t y = 0; y < count.y; ++y) {
      const int64_t row = (channel * info.extent.z + begin.z + z) * info.extent.y + begin.y + y;
      std::memcpy(bytes.data() + (z * plan.chunk.y + y) * plan.chunk.x * size,
                  volume.data.data() + (row * info.extent.x + begin.x) * size, static_cast<size_t>(count.x * size));
    }
  }
  if (!plan.packed) return bytes;
  std::vector<std::byte> shuffled(bytes.size());
  shuffle_bytes(bytes, shuffled.data(), size);
  return deflate_all(shuffled, DeflateKind::kZlib, plan.level);
}

Dataset make_dataset(const File& file, const std::string& name, const VolumeInfo& info, const Plan& plan) {
  const hsize_t sizes[4] = {static_cast<hsize_t>(info.channels), static_cast<hsize_t>(info.extent.z),
                            static_cast<hsize_t>(info.extent.y), static_cast<hsize_t>(info.extent.x)};
  const hsize_t chunk[4] = {1, static_cast<hsize_t>(plan.chunk.z), static_cast<hsize_t>(plan.chunk.y),
                            static_cast<hsize_t>(plan.chunk.x)};
  const int skipped = info.channels > 1 ? 0 : 1, rank = 4 - skipped;
  const Space space(H5Screate_simple(rank, sizes + skipped, nullptr));
  const Properties creation(H5Pcreate(H5P_DATASET_CREATE));
  H5Pset_chunk(creation.get(), rank, chunk + skipped);
  if (plan.packed) {
    H5Pset_shuffle(creation.get());
    H5Pset_deflate(creation.get(), static_cast<unsigned>(plan.level));
  }
  const Properties links(H5Pcreate(H5P_LINK_CREATE));
  H5Pset_create_intermediate_group(links.get(), 1);
  return Dataset(H5Dcreate2(file.get(), name.c_str(), memory_type(info.dtype), space.get(), links.get(), creation.get(),
                            H5P_DEFAULT));
}

bool write_spacing(const Dataset& dataset, const Spacing3& spacing) {
  const hsize_t three = 3;
  const double um[3] = {spacing.z_mm * 1e3, spacing.y_mm * 1e3, spacing.x_mm * 1e3};
  const Space space(H5Screate_simple(1, &three, nullptr));
  const Attribute attribute(
      H5Acreate2(dataset.get(), kElementSizeKey, H5T_NATIVE_DOUBLE, space.get(), H5P_DEFAULT, H5P_DEFAULT));
  return attribute && H5Awrite(attribute.get(), H5T_NATIVE_DOUBLE, um) >= 0;
}

[[noreturn]] void fail(const std::string& path) {  // what a user can do wrong was checked before
  throw Error(concat(path, ": cannot be written (", last_problem(), "); is the disk full?"), Fault::kMachine);
}

// The chunks of a slab that begins at slice `z_begin`.
void write_chunks(const std::string& path, const Dataset& dataset, const Volume& slab, int64_t z_begin,
                  const Plan& plan, ThreadPool* pool) {
  Extent3 across;
  for (int axis = 0; axis < 3; ++axis)
    across[axis] = (slab.info.extent[axis] + plan.chunk[axis] - 1) / plan.chunk[axis];
  const int64_t chunks = across.voxels() * slab.info.channels;
  const auto place_of = [&](int64_t number) {
    const int64_t place = number % across.voxels();
    return Extent3{place / (across.y * across.x) * plan.chunk.z, place / across.x % across.y * plan.chunk.y,
                   place % across.x * plan.chunk.x};
  };
  for (int64_t first = 0; first < chunks; first += kChunksAtOnce) {
    const int64_t count = std::min(kChunksAtOnce, chunks - first);
    std::vector<std::vector<std::byte>> packed(static_cast<size_t>(count));
    const auto pack = [&](int64_t i) {
      const int64_t number = first + i;
      packed[static_cast<size_t>(i)] = packed_chunk(slab, plan, number / across.voxels(), place_of(number));
    };
    if (pool)
      pool->for_each(count, pack);
    else
      for (int64_t i = 0; i < count; ++i) pack(i);
    const auto lock = lock_library();
    for (int64_t i = 0; i < count; ++i) {
      const int64_t number = first + i;
      const Extent3 at = place_of(number);
      const hsize_t origin[4] = {static_cast<hsize_t>(number / across.voxels()), static_cast<hsize_t>(z_begin + at.z),
                                 static_cast<hsize_t>(at.y), static_cast<hsize_t>(at.x)};
      const std::vector<std::byte>& bytes = packed[static_cast<size_t>(i)];
      const hsize_t* where = origin + (slab.info.channels > 1 ? 0 : 1);
      if (H5Dwrite_chunk(dataset.get(), H5P_DEFAULT, 0, where, bytes.size(), bytes.data()) < 0) fail(path);
    }
  }
}

struct Target {
  fs::path file;
  std::string dataset;
  std::string shown;   // as the user wrote it
  bool keeps = false;  // what else the file holds
};

Target target_of(const std::string& name) {
  const VolumeName parts = name_to_write(name);
  if (parts.dataset.empty()) return {.file = name, .dataset = "volume", .shown = name};
  return {.file = parts.path, .dataset = parts.dataset, .shown = name, .keeps = fs::exists(parts.path)};
}

// True where every part of "group/raw" stands in the file.
bool stands(const File& file, const std::string& dataset) {
  for (size_t slash = dataset.find('/');; slash = dataset.find('/', slash + 1)) {
    if (H5Lexists(file.get(), dataset.substr(0, slash).c_str(), H5P_DEFAULT) <= 0) return false;
    if (slash == std::string::npos) return true;
  }
}

void require_groups(const File& file, const Target& target) {  // above "raw" in "group/raw"
  const std::string& dataset = target.dataset;
  for (size_t slash = dataset.find('/'); slash != std::string::npos; slash = dataset.find('/', slash + 1)) {
    const std::string group = dataset.substr(0, slash);
    if (H5Lexists(file.get(), group.c_str(), H5P_DEFAULT) <= 0) return;
    VOX_CHECK(!Dataset(H5Dopen2(file.get(), group.c_str(), H5P_DEFAULT)), target.shown, ": ", group,
              " is a dataset, which holds no others; choose another name");
  }
}

// A copy of the file without the dataset that is written anew.
File open_copy(const std::string& hidden, const Target& target) {
  std::error_code problem;
  fs::copy_file(target.file, hidden, problem);
  if (problem) throw_system_error("write", target.shown, problem.value());
  File file(H5Fopen(hidden.c_str(), H5F_ACC_RDWR, H5P_DEFAULT));
  VOX_CHECK(file, target.shown, ": what stands there is no whole HDF5 file; remove it or choose another name");
  require_groups(file, target);
  if (!stands(file, target.dataset)) return file;
  VOX_CHECK(Dataset(H5Dopen2(file.get(), target.dataset.c_str(), H5P_DEFAULT)), target.shown,
            ": something else than a dataset has this name and is not replaced; choose another");
  H5Ldelete(file.get(), target.dataset.c_str(), H5P_DEFAULT);
  return file;
}

// Where no dataset is named the file becomes another, which must lose nothing but the same dataset.
void require_replaceable(const Target& target) {
  if (target.keeps || !fs::exists(target.file)) return;
  const auto lock = lock_library();
  const File file(H5Fopen(target.file.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT));
  H5G_info_t root{};
  if (!file || H5Gget_info(file.get(), &root) < 0) return;
  for (hsize_t i = 0; i < root.nlinks; ++i) {
    std::array<char, 256> name{};
    H5Lget_name_by_idx(file.get(), ".", H5_INDEX_NAME, H5_ITER_INC, i, name.data(), name.size(), H5P_DEFAULT);
    VOX_CHECK(target.dataset == name.data(), target.shown, ": it holds ", printable(name.data()),
              ", which would be lost; write a dataset of it as ", target.shown, ":NAME, or remove it first");
  }
}

struct TemporaryFile {
  fs::path path;
  ~TemporaryFile() {
    if (!path.empty()) unlink(path.c_str());
  }
};

void write_to(const std::string& hidden, const Target& target, const SlabSource& source, const Plan& plan,
              ThreadPool* pool) {
  const std::string& path = target.shown;
  auto lock = lock_library();
  File file = target.keeps ? open_copy(hidden, target)
                           : File(H5Fcreate(hidden.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT));
  if (!file) fail(path);
  Dataset dataset = make_dataset(file, target.dataset, source.info, plan);
  if (!dataset || (source.info.spacing && !write_spacing(dataset, *source.info.spacing))) fail(path);
  lock.unlock();
  try {
    each_slab(source, plan.chunk.z,
              [&](int64_t z_begin, const Volume& slab) { write_chunks(path, dataset, slab, z_begin, plan, pool); });
  } catch (...) {
    lock.lock();  // the handles are closed on the way out
    dataset = {};
    file = {};
    throw;
  }
  lock.lock();
  const bool flushed = H5Fflush(file.get(), H5F_SCOPE_GLOBAL) >= 0;
  dataset = {};
  file = {};
  if (!flushed) fail(path);
}

}  // namespace

void write_file(const std::string& path, const SlabSource& source, const WriteOptions& options, ThreadPool* pool) {
  const Plan plan = make_plan(path, source.info, options);
  const Target target = target_of(path);
  require_replaceable(target);
  const fs::path folder = target.file.parent_path();
  if (!folder.empty()) make_folders(folder);
  static std::atomic<int> counter{0};
  TemporaryFile hidden{folder / concat(".", target.file.filename().string(), ".", getpid(), ".", counter++, ".part")};
  write_to(hidden.path.string(), target, source, plan, pool);
  const InputFile written(hidden.path);
  if (fsync(written.descriptor()) != 0 || std::rename(hidden.path.c_str(), target.file.c_str()) != 0)
    throw_system_error("write", path, errno);
  hidden.path.clear();
}

}  // namespace vox::h5
#endif
