#include "io/raw_reader.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "base/error.h"

namespace vox {
namespace {

struct Half {  // IEEE 754 binary16
  uint16_t bits;
};

float to_float(Half half) {
  const int exponent = (half.bits >> 10) & 31, fraction = half.bits & 1023;
  const float magnitude = exponent == 31  ? (fraction != 0 ? std::numeric_limits<float>::quiet_NaN()
                                                           : std::numeric_limits<float>::infinity())
                          : exponent == 0 ? std::ldexp(static_cast<float>(fraction), -24)
                                          : std::ldexp(static_cast<float>(fraction + 1024), exponent - 25);
  return (half.bits & 0x8000) != 0 ? -magnitude : magnitude;
}

template <class Function>
decltype(auto) with_element(ElementType type, Function&& function) {
  switch (type) {
    case ElementType::kUInt8:
      return function(uint8_t{});
    case ElementType::kInt8:
      return function(int8_t{});
    case ElementType::kUInt16:
      return function(uint16_t{});
    case ElementType::kInt16:
      return function(int16_t{});
    case ElementType::kUInt32:
      return function(uint32_t{});
    case ElementType::kInt32:
      return function(int32_t{});
    case ElementType::kUInt64:
      return function(uint64_t{});
    case ElementType::kInt64:
      return function(int64_t{});
    case ElementType::kFloat16:
      return function(Half{});
    case ElementType::kFloat32:
      return function(float{});
    case ElementType::kFloat64:
      break;
  }
  return function(double{});
}

template <class T>
T load(const std::byte* from, bool swap) {
  std::array<std::byte, sizeof(T)> bytes;
  std::memcpy(bytes.data(), from, sizeof(T));
  if (swap) std::reverse(bytes.begin(), bytes.end());
  return std::bit_cast<T>(bytes);
}

template <class T>
auto as_stored(T value, const std::string& path) {
  if constexpr (std::is_same_v<T, Half>) {
    return to_float(value);
  } else if constexpr (std::is_same_v<T, int64_t> || std::is_same_v<T, uint64_t>) {
    using Narrow = std::conditional_t<std::is_same_v<T, int64_t>, int32_t, uint32_t>;
    const Narrow narrow = static_cast<Narrow>(value);
    VOX_CHECK(static_cast<T>(narrow) == value, path, ": the value ", value,
              " does not fit into 32 bits, and 64-bit volumes are read as 32-bit ones; save it as float64 or int32");
    return narrow;
  } else {
    return value;
  }
}

struct Run {                              // elements along the file's fastest axis
  int64_t count, from_stride, to_stride;  // in elements
};

template <class T>
void convert_run(std::byte* to, const std::byte* from, const Run& run, bool swap, const std::string& path) {
  using Stored = decltype(as_stored(T{}, path));
  const int64_t from_step = run.from_stride * static_cast<int64_t>(sizeof(T));
  const int64_t to_step = run.to_stride * static_cast<int64_t>(sizeof(Stored));
  for (int64_t i = 0; i < run.count; ++i, from += from_step, to += to_step) {
    const Stored value = as_stored(load<T>(from, swap), path);
    std::memcpy(to, &value, sizeof(Stored));
  }
}

template <class T>
void swap_in_place(std::byte* data, int64_t count) {
  for (int64_t i = 0; i < count; ++i, data += sizeof(T)) {
    const T value = load<T>(data, true);
    std::memcpy(data, &value, sizeof(T));
  }
}

void require_room(const ByteSource& source, const RawLayout& layout, int64_t* end) {
  const auto& sizes = layout.sizes;
  bool sane = layout.offset >= 0;
  int64_t bytes = size_of(layout.type);
  for (const int64_t size : sizes) {
    VOX_CHECK(size > 0, source.path(), ": its header says ", sizes[0], "x", sizes[1], "x", sizes[2], "x", sizes[3],
              " voxels (channel, z, y, x), which is none; expected at least one along each axis");
    sane = sane && !__builtin_mul_overflow(bytes, size, &bytes);
  }
  sane = sane && !__builtin_add_overflow(bytes, layout.offset, end);
  VOX_CHECK(sane && *end <= source.capacity(), source.path(), ": its header says ", sizes[0], "x", sizes[1], "x",
            sizes[2], "x", sizes[3], " voxels (channel, z, y, x) from byte ", layout.offset, " on, which a file of ",
            source.file_bytes(),
            " bytes cannot hold; the header is wrong, or the file was not copied or downloaded completely");
}

}  // namespace

int64_t size_of(ElementType type) {
  return with_element(type, [](auto zero) { return static_cast<int64_t>(sizeof(zero)); });
}

DType dtype_read_as(ElementType type) {
  return with_element(type, [](auto zero) { return dtype_of<decltype(as_stored(zero, std::string()))>(); });
}

void convert_elements(const ElementRow& row, const std::byte* from, std::byte* to, const std::string& path) {
  with_element(row.type, [&](auto zero) {
    convert_run<decltype(zero)>(to, from, {row.count, row.stride, 1}, row.swap_bytes, path);
  });
}

std::array<int64_t, 4> dense_strides(const std::array<int64_t, 4>& sizes, const std::array<int, 4>& order) {
  std::array<int64_t, 4> strides{};
  uint64_t stride = 1;  // may wrap for a header that lies; RawReader refuses that one before it uses strides
  for (auto axis = order.rbegin(); axis != order.rend(); ++axis) {
    strides[static_cast<size_t>(*axis)] = static_cast<int64_t>(stride);
    stride *= static_cast<uint64_t>(sizes[static_cast<size_t>(*axis)]);
  }
  return strides;
}

RawReader::RawReader(std::unique_ptr<ByteSource> source, const RawLayout& layout, const VolumeInfo& info,
                     const std::vector<std::string>& files)
    : source_(std::move(source)), layout_(layout) {
  require_room(*source_, layout_, &end_);
  info_ = info;
  files_ = files;
  info_.dtype = dtype_read_as(layout.type);
  info_.channels = layout.sizes[0];
  info_.extent = {layout.sizes[1], layout.sizes[2], layout.sizes[3]};
  if (source_->packing() != Packing::kNone) info_.chunk = info_.extent;
}

namespace {

// The walk over a box in the order of the file: axes of z, y, x from the slowest to the fastest.
struct BoxWalk {
  std::array<int, 3> axes{0, 1, 2};
  Extent3 from_stride, to_stride, count;  // in elements, by axis
  int64_t first = 0, last = 0;            // elements of the array
  bool rows_as_they_are = false;          // x runs fastest, dense, here as there
};

BoxWalk plan_walk(const RawLayout& layout, const Box3& box, int64_t channel) {
  BoxWalk walk;
  walk.from_stride = {layout.strides[1], layout.strides[2], layout.strides[3]};
  walk.count = box.extent();
  walk.to_stride = {walk.count.y * walk.count.x, walk.count.x, 1};
  std::stable_sort(walk.axes.begin(), walk.axes.end(),
                   [&](int a, int b) { return walk.from_stride[a] > walk.from_stride[b]; });
  walk.first = walk.last = channel * layout.strides[0];
  for (int axis = 0; axis < 3; ++axis) {
    walk.first += box.begin[axis] * walk.from_stride[axis];
    walk.last += (box.end[axis] - 1) * walk.from_stride[axis];
  }
  walk.rows_as_they_are = walk.axes[2] == 2 && walk.from_stride.x == 1;
  return walk;
}

// Neighbouring rows, and then slices, that lie without a gap here and there are one run.
void merge_runs(BoxWalk* walk) {
  for (const int axis : {1, 0}) {
    if (walk->axes[static_cast<size_t>(axis)] != axis || walk->from_stride[axis] != walk->count.x) return;
    walk->count.x *= walk->count[axis];
    walk->count[axis] = 1;
  }
}

}  // namespace

void RawReader::read(const Box3& box, int64_t channel, std::byte* out, ThreadPool*) const {
  VOX_ASSERT(!box.empty() && whole(info_.extent).contains(box) && channel >= 0 && channel < info_.channels);
  const int64_t from_size = size_of(layout_.type), to_size = size_of(info_.dtype), voxels = box.voxels();
  BoxWalk walk = plan_walk(layout_, box, channel);
  const bool as_they_are = walk.rows_as_they_are && from_size == to_size && layout_.type != ElementType::kFloat16;
  if (as_they_are) merge_runs(&walk);
  const int slow = walk.axes[0], middle = walk.axes[1], fast = walk.axes[2];
  const Run run{walk.count[fast], walk.from_stride[fast], walk.to_stride[fast]};
  const int64_t run_bytes = ((run.count - 1) * run.from_stride + 1) * from_size;
  const int64_t row_bytes = walk.from_stride[middle] * from_size;
  const int64_t read_ahead = run_bytes * 4 >= row_bytes ? walk.count[middle] * row_bytes : 0;
  const int64_t begin = layout_.offset + walk.first * from_size, end = layout_.offset + (walk.last + 1) * from_size;

  std::unique_ptr<ByteStream> stream = source_->take_stream({begin, end, read_ahead});
  std::vector<std::byte> scratch(as_they_are ? 0 : static_cast<size_t>(run_bytes));
  for (int64_t i = 0; i < walk.count[slow]; ++i) {
    for (int64_t j = 0; j < walk.count[middle]; ++j) {
      const int64_t from = begin + (i * walk.from_stride[slow] + j * walk.from_stride[middle]) * from_size;
      std::byte* to = out + (i * walk.to_stride[slow] + j * walk.to_stride[middle]) * to_size;
      if (as_they_are) {
        stream->read(from, {to, static_cast<size_t>(run_bytes)});
        continue;
      }
      stream->read(from, scratch);
      with_element(layout_.type, [&](auto zero) {
        convert_run<decltype(zero)>(to, scratch.data(), run, layout_.swap_bytes, source_->path());
      });
    }
  }
  if (as_they_are && layout_.swap_bytes)
    with_element(layout_.type, [&](auto zero) { swap_in_place<decltype(zero)>(out, voxels); });
  if (end == end_) stream->finish();
  source_->give_back(std::move(stream));
}

}  // namespace vox
