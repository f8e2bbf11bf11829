#include "io/zarr_metadata.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/shallow_json.h"
#include "base/text.h"
#include "io/zarr_types.h"

namespace vox::zarr {
namespace {

using nlohmann::json;

constexpr int64_t kMostMetadataBytes = 64 << 20;

json parse_json(const fs::path& path) {
  VOX_CHECK(fs::file_size(path) <= kMostMetadataBytes, path.string(), ": metadata of ", fs::file_size(path),
            " bytes; this is no Zarr file");
  json value = parse_shallow<json>(read_file(path));
  VOX_CHECK(value.is_object(), path.string(), ": this is not valid JSON; was it copied or downloaded completely?");
  return value;
}

// Every access by key goes through here, so that a missing or odd entry is a sentence and no exception of the library.
template <class T>
T entry(const json& from, const char* key, const std::string& path) {
  const auto found = from.is_object() ? from.find(key) : from.end();
  VOX_CHECK(from.is_object() && found != from.end(), path, ": \"", key, "\" is missing");
  try {
    return found->get<T>();
  } catch (const json::exception&) {
    throw Error(concat(path, ": \"", key, "\" is ", found->dump().substr(0, 60), ", which makes no sense here"));
  }
}

std::vector<int64_t> sizes_entry(const json& from, const char* key, const std::string& path) {
  const auto sizes = entry<std::vector<int64_t>>(from, key, path);
  for (const int64_t size : sizes)
    VOX_CHECK(size > 0, path, ": \"", key, "\" is ", from[key].dump(), "; expected positive sizes");
  return sizes;
}

// Strides in a chunk whose axes run from slowest to fastest as `order` says, then the last four axes of all.
void fill_grid(Array& array, const std::vector<size_t>& order, const std::string& path) {
  const size_t rank = array.shape.size();
  VOX_CHECK(array.chunk.size() == rank, path, ": the chunks have ", array.chunk.size(), " axes, but the array has ",
            rank);
  VOX_CHECK(rank >= 3, path, ": the array has ", rank, " axes; expected 3 (z, y, x) or 4 (channel, z, y, x)");
  for (size_t axis = 0; axis + 4 < rank; ++axis)
    VOX_CHECK(array.shape[axis] == 1, path, ": the array has ", rank, " axes, and the first is ", array.shape[axis],
              " long; expected z, y, x or channel, z, y, x, after axes of length 1");
  std::vector<int64_t> strides(rank);
  int64_t bytes = size_of(array.grid.type), stride = 1, total = size_of(array.grid.type);
  bool overflow = false;
  for (size_t i = rank; i-- > 0;) {
    strides[order[i]] = stride;
    overflow |= __builtin_mul_overflow(stride, array.chunk[order[i]], &stride);
    overflow |= __builtin_mul_overflow(total, array.shape[i], &total);
  }
  overflow |= __builtin_mul_overflow(bytes, stride, &bytes);
  VOX_CHECK(!overflow && total < int64_t{1} << 56, path, ": an array or chunk of this size is larger than any memory");
  array.grid.chunk_bytes = bytes;
  for (size_t axis = 0; axis < std::min<size_t>(rank, 4); ++axis) {
    array.grid.sizes[3 - axis] = array.shape[rank - 1 - axis];
    array.grid.chunk[3 - axis] = array.chunk[rank - 1 - axis];
    array.grid.strides[3 - axis] = strides[rank - 1 - axis];
  }
}

std::vector<size_t> plain_order(size_t rank, bool reversed) {
  std::vector<size_t> order(rank);
  for (size_t i = 0; i < rank; ++i) order[i] = reversed ? rank - 1 - i : i;
  return order;
}

double fill_number(const json& value, ElementType type, const std::string& path) {
  if (value.is_null()) return 0;
  if (value.is_boolean()) return value.get<bool>() ? 1 : 0;
  if (value.is_number()) return value.get<double>();
  const std::string text = value.is_string() ? value.get<std::string>() : "";
  if (text == "NaN") return std::numeric_limits<double>::quiet_NaN();
  if (text == "Infinity") return std::numeric_limits<double>::infinity();
  if (text == "-Infinity") return -std::numeric_limits<double>::infinity();
  uint64_t bits = 0;
  const bool hex = text.starts_with("0x");
  const auto [stop, status] = std::from_chars(text.data() + (hex ? 2 : 0), text.data() + text.size(), bits, 16);
  if (hex && status == std::errc() && stop == text.data() + text.size() && type == ElementType::kFloat32)
    return static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(bits)));
  if (hex && status == std::errc() && stop == text.data() + text.size() && type == ElementType::kFloat64)
    return std::bit_cast<double>(bits);
  throw Error(concat(path, ": the fill value ", value.dump().substr(0, 60), " cannot be read"));
}

std::vector<std::byte> fill_bytes(const json& value, ElementType type, const std::string& path) {
  const double number = fill_number(value, type, path);
  return with_type(dtype_read_as(type), [&](auto zero) {
    using T = decltype(zero);
    bool fits = true;
    if constexpr (std::is_integral_v<T>)
      fits = number >= static_cast<double>(std::numeric_limits<T>::min()) &&
             number <= static_cast<double>(std::numeric_limits<T>::max());
    VOX_CHECK(fits, path, ": the fill value ", number, " does not fit the type of the array");
    const T voxel = static_cast<T>(number);
    std::vector<std::byte> bytes(sizeof(T));
    std::memcpy(bytes.data(), &voxel, sizeof(T));
    return bytes;
  });
}

Compressor compressor_from(const std::string& id, const std::string& path) {
  for (const Compressor known :
       {Compressor::kGzip, Compressor::kZlib, Compressor::kZstd, Compressor::kLz4, Compressor::kBlosc}) {
    if (id == name_of(known)) return known;
  }
  throw Error(
      concat(path, ": chunks are packed by \"", printable(id), "\"; known are gzip, zlib, zstd, lz4 and blosc"));
}

Array read_version2(const fs::path& file) {
  const std::string path = file.string();
  const json meta = parse_json(file);
  VOX_CHECK(entry<int>(meta, "zarr_format", path) == 2, path, ": zarr_format is ", meta["zarr_format"].dump(),
            " in a .zarray; expected 2");
  Array array;
  array.shape = sizes_entry(meta, "shape", path);
  array.chunk = sizes_entry(meta, "chunks", path);
  const json dtype = entry<json>(meta, "dtype", path);
  VOX_CHECK(dtype.is_string(), path, ": the array holds records (", dtype.dump().substr(0, 60),
            "); expected one number a voxel");
  const TypeName type = type_from_numpy(dtype.get<std::string>(), path);
  array.grid.type = type.element;
  array.grid.swap_bytes = type.big_endian;
  const json filters = meta.value("filters", json());
  VOX_CHECK(filters.is_null() || filters.empty(), path, ": the chunks went through filters (",
            filters.dump().substr(0, 60), "), which cannot be undone; save the array without filters");
  const json compressor = meta.value("compressor", json());
  if (!compressor.is_null()) array.codec.compressor = compressor_from(entry<std::string>(compressor, "id", path), path);
  const std::string order = entry<std::string>(meta, "order", path);
  VOX_CHECK(order == "C" || order == "F", path, ": \"order\" is \"", printable(order), "\"; expected C or F");
  const std::string separator = meta.value("dimension_separator", json(".")).is_string()
                                    ? meta.value("dimension_separator", std::string("."))
                                    : std::string();
  VOX_CHECK(separator == "." || separator == "/", path, ": \"dimension_separator\" is neither \".\" nor \"/\"");
  array.separator = separator[0];
  array.fill = fill_bytes(meta.value("fill_value", json()), array.grid.type, path);
  fill_grid(array, plain_order(array.shape.size(), order == "F"), path);
  return array;
}

// ---- version 3 ----

json configuration_of(const json& codec, const std::string& path) {
  const auto found = codec.find("configuration");
  if (found == codec.end()) return json::object();
  VOX_CHECK(found->is_object(), path, ": a \"configuration\" is ", found->dump().substr(0, 60), "; expected {...}");
  return *found;
}

std::string name_of_codec(const json& codec, const std::string& path) {
  return codec.is_string() ? codec.get<std::string>() : entry<std::string>(codec, "name", path);
}

std::vector<size_t> transposed_order(const json& order, size_t rank, const std::string& path) {
  if (order == "C" || order == "F") return plain_order(rank, order == "F");
  std::vector<size_t> axes;
  if (order.is_array())
    for (const json& axis : order) axes.push_back(axis.is_number_unsigned() ? axis.get<size_t>() : rank);
  std::vector<size_t> sorted = axes;
  std::sort(sorted.begin(), sorted.end());
  VOX_CHECK(sorted == plain_order(rank, false), path, ": the transpose codec has the order ", order.dump(),
            ", which is no order of ", rank, " axes");
  return axes;
}

void read_sharding(Array& array, const json& settings, const std::string& path, json* inner_codecs);

void read_codecs(Array& array, const json& codecs, std::vector<size_t>* order, const std::string& path) {
  VOX_CHECK(codecs.is_array(), path, ": \"codecs\" is no list");
  bool as_bytes = false;
  for (const json& codec : codecs) {
    const std::string name = name_of_codec(codec, path);
    const json settings = codec.is_object() ? configuration_of(codec, path) : json::object();
    VOX_CHECK(!array.codec.crc32c && (name == "crc32c" || array.codec.compressor == Compressor::kNone), path,
              ": the codec \"", printable(name), "\" follows another that packs; such a chain cannot be read");
    if (name == "transpose" && !as_bytes) {
      *order = transposed_order(settings.value("order", json()), array.shape.size(), path);
    } else if (name == "bytes" && !as_bytes) {
      array.grid.swap_bytes = settings.value("endian", json("little")) == "big" && size_of(array.grid.type) > 1;
      as_bytes = true;
    } else if (name == "sharding_indexed" && !as_bytes && !array.sharding && codecs.size() == 1) {
      json inner;
      read_sharding(array, settings, path, &inner);
      return read_codecs(array, inner, order, path);
    } else if (name == "crc32c" && as_bytes) {
      array.codec.crc32c = true;
    } else {
      const bool numcodecs = name.starts_with("numcodecs.");
      VOX_CHECK(as_bytes, path, ": the codec \"", printable(name), "\" cannot be read",
                name == "sharding_indexed" ? " here (shards inside shards, or after another codec)" : "");
      array.codec.compressor = compressor_from(numcodecs ? name.substr(10) : name, path);
    }
  }
  VOX_CHECK(as_bytes, path, ": the codecs do not say how numbers become bytes");
}

void read_sharding(Array& array, const json& settings, const std::string& path, json* inner_codecs) {
  const std::vector<int64_t> shard = array.chunk;
  array.chunk = sizes_entry(settings, "chunk_shape", path);
  VOX_CHECK(array.chunk.size() == shard.size(), path, ": chunks inside a shard have another number of axes");
  Sharding sharding;
  for (size_t axis = 0; axis < shard.size(); ++axis) {
    VOX_CHECK(shard[axis] % array.chunk[axis] == 0, path, ": a shard of ", shard[axis],
              " voxels does not hold whole chunks of ", array.chunk[axis]);
    sharding.chunks_across.push_back(shard[axis] / array.chunk[axis]);
  }
  const json location = settings.value("index_location", json("end"));
  VOX_CHECK(location == "end" || location == "start", path, ": \"index_location\" is neither start nor end");
  sharding.index_at_end = location == "end";
  sharding.index_crc32c = false;
  for (const json& codec : settings.value("index_codecs", json::array())) {
    const std::string name = name_of_codec(codec, path);
    const bool big = codec.is_object() && configuration_of(codec, path).value("endian", json("little")) == "big";
    VOX_CHECK((name == "bytes" && !big) || name == "crc32c", path, ": the index of a shard is packed by \"",
              printable(name), "\"; known are bytes (little endian) and crc32c");
    sharding.index_crc32c |= name == "crc32c";
  }
  constexpr int64_t kMostChunks = int64_t{1} << 26;
  int64_t chunks = 1;
  for (const int64_t across : sharding.chunks_across)
    VOX_CHECK(!__builtin_mul_overflow(chunks, across, &chunks) && chunks <= kMostChunks, path,
              ": a shard of so many chunks makes no sense");
  array.sharding = sharding;
  *inner_codecs = entry<json>(settings, "codecs", path);
}

Array read_version3(const fs::path& file) {
  const std::string path = file.string();
  const json meta = parse_json(file);
  VOX_CHECK(entry<int>(meta, "zarr_format", path) == 3, path, ": zarr_format is ", meta["zarr_format"].dump(),
            " in a zarr.json; expected 3");
  Array array;
  array.shape = sizes_entry(meta, "shape", path);
  const json grid = entry<json>(meta, "chunk_grid", path);
  VOX_CHECK(entry<std::string>(grid, "name", path) == "regular", path, ": the chunk grid is not regular");
  array.chunk = sizes_entry(entry<json>(grid, "configuration", path), "chunk_shape", path);
  array.grid.type = type_from_name(entry<json>(meta, "data_type", path).dump(), path);
  const json keys = entry<json>(meta, "chunk_key_encoding", path);
  const bool as_version2 = entry<std::string>(keys, "name", path) == "v2";
  VOX_CHECK(as_version2 || keys["name"] == "default", path, ": the chunk key encoding ", keys["name"].dump(),
            " is unknown");
  const json separator = configuration_of(keys, path).value("separator", json(as_version2 ? "." : "/"));
  VOX_CHECK(separator == "." || separator == "/", path, ": the separator of chunk keys is neither \".\" nor \"/\"");
  array.separator = separator.get<std::string>()[0];
  if (!as_version2) array.key_prefix = std::string("c") + array.separator;
  VOX_CHECK(meta.value("storage_transformers", json::array()).empty(), path, ": storage transformers are unknown");
  std::vector<size_t> order = plain_order(array.shape.size(), false);
  read_codecs(array, entry<json>(meta, "codecs", path), &order, path);
  array.fill = fill_bytes(meta.value("fill_value", json()), array.grid.type, path);
  fill_grid(array, order, path);
  return array;
}

bool zarr_json_says(const fs::path& folder, const char* node) {
  std::error_code ignored;
  if (!fs::exists(folder / "zarr.json", ignored)) return false;
  return parse_json(folder / "zarr.json").value("node_type", json()) == node;
}

// ---- attributes ----

json attributes_of(const fs::path& folder) {
  std::error_code ignored;
  if (fs::exists(folder / "zarr.json", ignored))
    return parse_json(folder / "zarr.json").value("attributes", json::object());
  if (fs::exists(folder / ".zattrs", ignored)) return parse_json(folder / ".zattrs");
  return json::object();
}

double millimetres(const json& axis) {  // 0: not said
  const std::string unit = axis.is_object() && axis.contains("unit") && axis["unit"].is_string() ? axis["unit"] : "";
  static const std::pair<const char*, double> kUnits[] = {{"meter", 1e3},      {"centimeter", 10},
                                                          {"millimeter", 1},   {"micrometer", 1e-3},
                                                          {"nanometer", 1e-6}, {"angstrom", 1e-7}};
  for (const auto& [name, size] : kUnits)
    if (unit == name) return size;
  return 0;
}

std::optional<Spacing3> spacing_of(const json& transformations, const json& axes) {
  if (!transformations.is_array() || !axes.is_array() || axes.size() < 3) return std::nullopt;
  for (const json& transformation : transformations) {
    if (!transformation.is_object() || transformation.value("type", json()) != "scale") continue;
    const json scale = transformation.value("scale", json());
    if (!scale.is_array() || scale.size() != axes.size()) continue;
    Spacing3 spacing;
    for (size_t i = 0; i < 3; ++i) {
      const size_t axis = axes.size() - 3 + i;
      spacing[static_cast<int>(i)] = scale[axis].is_number() ? scale[axis].get<double>() * millimetres(axes[axis]) : 0;
    }
    if (spacing.z_mm > 0 && spacing.y_mm > 0 && spacing.x_mm > 0) return spacing;
  }
  return std::nullopt;
}

}  // namespace

const char* name_of(Compressor compressor) {
  static constexpr const char* kNames[] = {"none", "gzip", "zlib", "zstd", "lz4", "blosc"};
  return kNames[static_cast<size_t>(compressor)];
}

int64_t Sharding::chunks() const {
  int64_t count = 1;
  for (const int64_t across : chunks_across) count *= across;
  return count;
}

bool is_array(const fs::path& folder) {
  std::error_code ignored;
  return fs::exists(folder / ".zarray", ignored) || zarr_json_says(folder, "array");
}

bool is_group(const fs::path& folder) {
  std::error_code ignored;
  return fs::exists(folder / ".zgroup", ignored) || zarr_json_says(folder, "group");
}

Array read_array(const fs::path& folder) {
  return fs::exists(folder / ".zarray") ? read_version2(folder / ".zarray") : read_version3(folder / "zarr.json");
}

std::vector<Level> read_levels(const fs::path& group) {
  const json attributes = attributes_of(group);
  const json& holder = attributes.contains("ome") && attributes["ome"].is_object() ? attributes["ome"] : attributes;
  const auto scales = holder.find("multiscales");
  std::vector<Level> levels;
  if (scales == holder.end() || !scales->is_array() || scales->empty() || !scales->front().is_object()) return levels;
  const json& image = scales->front();
  for (const json& dataset : image.value("datasets", json::array())) {
    if (!dataset.is_object() || !dataset.contains("path")) continue;
    const json& path = dataset["path"];  // some writers leave a number
    levels.push_back({path.is_string() ? path.get<std::string>() : path.dump(),
                      spacing_of(dataset.value("coordinateTransformations", json()), image.value("axes", json()))});
  }
  return levels;
}

std::optional<Spacing3> voxel_size_of(const fs::path& folder) {
  const json attributes = attributes_of(folder);
  const auto found = attributes.find(kVoxelSizeKey);
  if (found == attributes.end() || !found->is_array() || found->size() != 3) return std::nullopt;
  Spacing3 spacing;
  for (size_t i = 0; i < 3; ++i) spacing[static_cast<int>(i)] = (*found)[i].is_number() ? (*found)[i].get<double>() : 0;
  if (!(spacing.z_mm > 0 && spacing.y_mm > 0 && spacing.x_mm > 0)) return std::nullopt;
  return spacing;
}

}  // namespace vox::zarr
