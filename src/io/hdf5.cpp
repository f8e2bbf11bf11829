// HDF5 datasets: `file.h5:dataset`, or the only one that can be a volume. The library holds one lock for everything, so
// it only opens the file and fetches packed chunks; unpacking happens outside, in the pool. Contiguous data is read
// past the library altogether. Layouts and filters that we do not know go through the library.
#include "io/format.h"

#include <cstring>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "base/thread_pool.h"
#ifdef VOX_HAVE_HDF5
#include "io/hdf5_dataset.h"
#include "io/hdf5_index.h"
#include "io/hdf5_writer.h"
#endif

namespace vox {
namespace {

bool matches(std::span<const std::byte> head, const fs::path&) {
  constexpr std::string_view kMagic = "\x89HDF\r\n\x1a\n";
  return head.size() >= kMagic.size() && std::memcmp(head.data(), kMagic.data(), kMagic.size()) == 0;
}

#ifdef VOX_HAVE_HDF5

class Hdf5Reader final : public VolumeReader {
 public:
  Hdf5Reader(h5::File file, h5::Dataset dataset, const h5::DatasetFacts& facts, const std::string& path,
             const std::string& name)
      : plain_file_(path), name_(name), facts_(facts), file_(std::move(file)), dataset_(std::move(dataset)) {
    const size_t rank = facts.shape.size();
    for (size_t i = 0; i < std::min<size_t>(rank, 4); ++i) {
      grid_.sizes[3 - i] = facts.shape[rank - 1 - i];
      grid_.chunk[3 - i] = facts.chunk.empty() ? grid_.sizes[3 - i] : facts.chunk[rank - 1 - i];
    }
    files_ = facts.files;
    grid_.type = facts.type;
    grid_.swap_bytes = facts.swap_bytes;
    grid_.strides = dense_strides(grid_.chunk, {0, 1, 2, 3});
    grid_.chunk_bytes = size_of(facts.type);
    for (const int64_t size : grid_.chunk) grid_.chunk_bytes *= size;
    info_.dtype = dtype_read_as(facts.type);
    info_.channels = grid_.sizes[0];
    info_.extent = {grid_.sizes[1], grid_.sizes[2], grid_.sizes[3]};
    info_.spacing = facts.spacing;
    info_.format = "hdf5";
    info_.codec = codec_name();
    if (facts.chunk.empty() || (facts.pipeline && facts.pipeline->filters.empty())) return;
    info_.chunk = min({grid_.chunk[1], grid_.chunk[2], grid_.chunk[3]}, info_.extent);
  }
  ~Hdf5Reader() override {
    const auto lock = h5::lock_library();
    dataset_ = {};
    file_ = {};
  }

  void read(const Box3& box, int64_t channel, std::byte* out, ThreadPool* pool) const override {
    VOX_ASSERT(!box.empty() && whole(info_.extent).contains(box) && channel >= 0 && channel < info_.channels);
    if (!facts_.pipeline) return read_by_library(box, channel, out);
    const std::vector<ChunkPart> parts = parts_of(grid_, box, channel);
    const BoxTarget target{out, box.extent(), info_.dtype};
    const auto run = [&](int64_t i) { read_part(parts[static_cast<size_t>(i)], target); };
    const int64_t count = static_cast<int64_t>(parts.size());
    if (pool && count > 1) return pool->for_each(count, run);
    for (int64_t i = 0; i < count; ++i) run(i);
  }
  void locate_chunks() {  // once, by the lock's holder
    if (facts_.pipeline) index_ = h5::read_chunk_index(plain_file_, file_.get(), dataset_.get(), facts_.shape.size());
  }

 private:
  std::string codec_name() const {
    if (!facts_.pipeline) return facts_.chunk.empty() ? "none" : "other";
    static constexpr const char* kNames[] = {"gzip", "shuffle", "fletcher32", "lzf", "zstd", "blosc"};
    std::string name = "none";
    for (const h5::Filter filter : facts_.pipeline->filters)
      if (filter != h5::Filter::kShuffle || name == "none") name = kNames[static_cast<size_t>(filter)];
    for (const h5::Filter filter : facts_.pipeline->filters)
      if (filter != h5::Filter::kShuffle && filter != h5::Filter::kFletcher32)
        name = kNames[static_cast<size_t>(filter)];
    return name;
  }

  std::vector<hsize_t> origin_of(const std::array<int64_t, 4>& chunk) const {
    const size_t rank = facts_.shape.size();
    std::vector<hsize_t> origin(rank, 0);
    for (size_t i = 0; i < std::min<size_t>(rank, 4); ++i)
      origin[rank - 1 - i] = static_cast<hsize_t>(chunk[3 - i] * grid_.chunk[3 - i]);
    return origin;
  }

  void read_part(const ChunkPart& part, const BoxTarget& target) const {
    thread_local std::vector<std::byte> packed, chunk;
    const std::vector<hsize_t> origin = origin_of(part.chunk);
    try {
      if (index_ && facts_.pipeline->filters.empty()) return read_plain_part(part, origin, target);
      uint32_t skipped_filters = 0;
      const ByteRange wanted = bytes_of(grid_, part);
      if (!fetch(origin, &packed, &skipped_filters)) return fill_part(part, facts_.fill.data(), target);
      VOX_CHECK(
          grid_.chunk_bytes <= kLargeChunk || grid_.chunk_bytes / kMostExpansion <= static_cast<int64_t>(packed.size()),
          "a chunk of ", grid_.chunk_bytes, " bytes cannot come from ", packed.size(), " packed ones");
      if (static_cast<int64_t>(chunk.size()) < grid_.chunk_bytes) chunk.resize(static_cast<size_t>(grid_.chunk_bytes));
      const std::span<std::byte> unpacked(chunk.data(), static_cast<size_t>(grid_.chunk_bytes));
      h5::decode_chunk(*facts_.pipeline, skipped_filters, packed, unpacked, wanted);
      copy_part(grid_, part, unpacked.data(), target, name_);
    } catch (const Error& error) {
      std::vector<std::string> place;
      for (const hsize_t at : origin) place.push_back(std::to_string(at));
      throw with_context(concat(name_, ": the chunk at ", join(place, ","), " cannot be read"), error);
    }
  }

  // Of a chunk that is not packed only the stretch from the first to the last voxel of the part.
  void read_plain_part(const ChunkPart& part, const std::vector<hsize_t>& origin, const BoxTarget& target) const {
    thread_local std::vector<std::byte> stretch;
    const h5::ChunkPlace place = index_->find(origin);
    if (place.bytes == 0) return fill_part(part, facts_.fill.data(), target);
    VOX_CHECK(static_cast<int64_t>(place.bytes) == grid_.chunk_bytes, "it has ", place.bytes, " bytes, but ",
              grid_.chunk_bytes, " are expected");
    const ByteRange wanted = bytes_of(grid_, part);
    const size_t bytes = static_cast<size_t>(wanted.end - wanted.begin);
    if (stretch.size() < bytes) stretch.resize(bytes);
    plain_file_.read(static_cast<int64_t>(place.address) + wanted.begin, std::span(stretch).first(bytes));
    copy_part(grid_, part, stretch.data() - wanted.begin, target, name_);
  }

  // The packed bytes of a chunk; false where it was never written.
  bool fetch(const std::vector<hsize_t>& origin, std::vector<std::byte>* packed, uint32_t* skipped_filters) const {
    if (index_) {
      const h5::ChunkPlace place = index_->find(origin);
      *skipped_filters = place.skipped_filters;
      packed->resize(static_cast<size_t>(place.bytes));
      if (place.bytes > 0) plain_file_.read(static_cast<int64_t>(place.address), *packed);
      return place.bytes > 0;
    }
    const auto lock = h5::lock_library();
    const hsize_t bytes = h5::chunk_bytes(dataset_.get(), origin.data());
    if (bytes == 0) return false;
    VOX_CHECK(static_cast<int64_t>(bytes) <= plain_file_.size(), "it claims ", bytes, " bytes, more than the file has");
    packed->resize(static_cast<size_t>(bytes));
    const herr_t state = H5Dread_chunk(dataset_.get(), H5P_DEFAULT, origin.data(), skipped_filters, packed->data());
    VOX_CHECK(state >= 0, h5::last_problem());
    return true;
  }

  void read_by_library(const Box3& box, int64_t channel, std::byte* out) const {
    const auto lock = h5::lock_library();
    const size_t rank = facts_.shape.size();
    std::vector<hsize_t> start(rank, 0), count(rank, 1);
    for (size_t axis = 0; axis < 3; ++axis) {
      start[rank - 3 + axis] = static_cast<hsize_t>(box.begin[static_cast<int>(axis)]);
      count[rank - 3 + axis] = static_cast<hsize_t>(box.extent()[static_cast<int>(axis)]);
    }
    if (rank > 3) start[rank - 4] = static_cast<hsize_t>(channel);
    const h5::Space from(H5Dget_space(dataset_.get()));
    const h5::Space to(H5Screate_simple(static_cast<int>(rank), count.data(), nullptr));
    const bool good =
        from && to &&
        H5Sselect_hyperslab(from.get(), H5S_SELECT_SET, start.data(), nullptr, count.data(), nullptr) >= 0 &&
        H5Dread(dataset_.get(), h5::memory_type(info_.dtype), to.get(), from.get(), H5P_DEFAULT, out) >= 0;
    VOX_CHECK(good, name_, ": the data cannot be read (", h5::last_problem(), ")");
  }

  static constexpr int64_t kLargeChunk = int64_t{64} << 20, kMostExpansion = 131072;

  const InputFile plain_file_;
  const std::string name_;
  const h5::DatasetFacts facts_;
  h5::File file_;  // both are used under lock_library() alone
  h5::Dataset dataset_;
  ChunkGrid grid_;
  std::optional<h5::ChunkIndex> index_;  // absent: the library is asked for each chunk
};

void require_volume(const h5::DatasetFacts& facts, const std::string& name) {
  const size_t rank = facts.shape.size();
  VOX_CHECK(rank >= 3, name, ": the dataset has ", rank, " axes; expected 3 (z, y, x) or 4 (channel, z, y, x)");
  int64_t bytes = size_of(facts.type), chunk_bytes = bytes;
  for (size_t axis = 0; axis < rank; ++axis) {
    const int64_t size = facts.shape[axis];
    VOX_CHECK(size > 0, name, ": the dataset is empty");
    VOX_CHECK(axis + 4 >= rank || size == 1, name, ": the dataset has ", rank, " axes, and the first is ", size,
              " long; expected z, y, x or channel, z, y, x, after axes of length 1");
    VOX_CHECK(!__builtin_mul_overflow(bytes, size, &bytes), name, ": a dataset of this size is larger than any memory");
    if (!facts.chunk.empty())
      VOX_CHECK(facts.chunk[axis] > 0 && !__builtin_mul_overflow(chunk_bytes, facts.chunk[axis], &chunk_bytes), name,
                ": a chunk of this size is larger than any memory");
  }
}

bool leading_chunks_are_single(const h5::DatasetFacts& facts) {
  for (size_t axis = 0; axis + 4 < facts.chunk.size(); ++axis)
    if (facts.chunk[axis] != 1) return false;
  return true;
}

std::string listed(std::vector<std::string> names) {
  for (std::string& name : names) name = printable(name);
  return join(names, ", ");
}

std::unique_ptr<VolumeReader> make_reader(const std::string& path, const std::string& dataset_name) {
  const auto lock = h5::lock_library();
  h5::File file = h5::open_file(path);
  std::string chosen = dataset_name;
  if (chosen.empty()) {
    const std::vector<std::string> names = h5::volumes_in(file);
    VOX_CHECK(names.size() == 1, path, ": this HDF5 file holds ",
              names.empty() ? "no dataset of numbers with three axes that the HDF5 library can open" : listed(names),
              names.empty() ? "; PATH:NAME says why one cannot be opened" : "; choose one: PATH:NAME");
    chosen = names.front();
  }
  const std::string name = path + ":" + printable(chosen);
  h5::Dataset dataset(H5Dopen2(file.get(), chosen.c_str(), H5P_DEFAULT));
  if (!dataset) {
    const std::string reason = h5::last_problem();
    const std::vector<std::string> names = h5::volumes_in(file);
    throw Error(concat(name, ": this dataset cannot be opened (", reason, "); volumes in this file: ",
                       names.empty() ? "none that this HDF5 library can read" : listed(names)));
  }
  h5::DatasetFacts facts = h5::read_facts(file, dataset, name);
  require_volume(facts, name);
  if (!leading_chunks_are_single(facts)) facts.pipeline.reset();
  if (facts.offset) {
    RawLayout layout{.type = facts.type, .swap_bytes = facts.swap_bytes, .offset = *facts.offset};
    const size_t rank = facts.shape.size();
    for (size_t i = 0; i < std::min<size_t>(rank, 4); ++i) layout.sizes[3 - i] = facts.shape[rank - 1 - i];
    layout.strides = dense_strides(layout.sizes, {0, 1, 2, 3});
    VolumeInfo info;
    info.format = "hdf5";
    info.spacing = facts.spacing;
    InputFile plain(path);
    const PackedRange range{.packing = Packing::kNone, .begin = 0, .end = plain.size()};
    return std::make_unique<RawReader>(std::make_unique<ByteSource>(std::move(plain), range), layout, info);
  }
  auto reader = std::make_unique<Hdf5Reader>(std::move(file), std::move(dataset), facts, path, name);
  reader->locate_chunks();
  return reader;
}

std::unique_ptr<VolumeReader> open(const std::string& path) {
  return make_reader(path, "");
}
std::unique_ptr<VolumeReader> open_dataset(const std::string& path, const std::string& dataset) {
  return make_reader(path, dataset);
}
void write(const std::string& path, const Volume& volume, const WriteOptions& options, ThreadPool* pool) {
  h5::write_file(path, slabs_of(volume), options, pool);
}

#else

[[noreturn]] void refuse(const std::string& path) {
  throw Error(concat(
      path, ": HDF5 files need the HDF5 library, which this build does not have; install libhdf5-dev and build again"));
}
std::unique_ptr<VolumeReader> open(const std::string& path) {
  refuse(path);
}
std::unique_ptr<VolumeReader> open_dataset(const std::string& path, const std::string&) {
  refuse(path);
}

#endif

}  // namespace

FormatEntry hdf5_format() {
  FormatEntry entry{"hdf5",
                    "HDF5: FILE:DATASET, contiguous or chunked; gzip, shuffle, LZF, fletcher32, zstd, blosc",
                    {".h5", ".hdf5", ".hdf"},
                    {"gzip", "none"},
                    matches,
                    open,
#ifdef VOX_HAVE_HDF5
                    write};
#else
                    nullptr};
#endif
  entry.open_dataset = open_dataset;
#ifdef VOX_HAVE_HDF5
  entry.write_slabs = h5::write_file;
#endif
  return entry;
}

}  // namespace vox
