// Field offsets are those of nifti1.h (Cox et al. 2004) and nifti2.h (2011).
#include "io/nifti_header.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/error.h"

namespace vox {
namespace {

constexpr int64_t kExtensionFlagBytes = 4;  // between header and voxels; all zero: no extension

class Fields {
 public:
  Fields(std::span<const std::byte> bytes, bool swap) : bytes_(bytes), swap_(swap) {}
  template <class T>
  T get(size_t offset) const {
    std::array<std::byte, sizeof(T)> raw;
    std::memcpy(raw.data(), bytes_.data() + offset, sizeof(T));
    if (swap_) std::reverse(raw.begin(), raw.end());
    return std::bit_cast<T>(raw);
  }
  template <class T, class To, size_t N>
  void get(size_t offset, std::array<To, N>* out) const {
    for (size_t i = 0; i < N; ++i) (*out)[i] = static_cast<To>(get<T>(offset + i * sizeof(T)));
  }

 private:
  std::span<const std::byte> bytes_;
  bool swap_;
};

struct DataType {
  int code;
  const char* name;
  std::optional<ElementType> element;
};
const DataType kDataTypes[] = {{2, "uint8", ElementType::kUInt8},
                               {256, "int8", ElementType::kInt8},
                               {512, "uint16", ElementType::kUInt16},
                               {4, "int16", ElementType::kInt16},
                               {768, "uint32", ElementType::kUInt32},
                               {8, "int32", ElementType::kInt32},
                               {16, "float32", ElementType::kFloat32},
                               {64, "float64", ElementType::kFloat64},
                               {1, "1-bit", std::nullopt},
                               {1024, "int64", std::nullopt},
                               {1280, "uint64", std::nullopt},
                               {1536, "float128", std::nullopt},
                               {32, "complex64", std::nullopt},
                               {1792, "complex128", std::nullopt},
                               {2048, "complex256", std::nullopt},
                               {128, "RGB24", std::nullopt},
                               {2304, "RGBA32", std::nullopt}};

ElementType element_of(int code, const std::string& path) {
  std::string name = concat("number ", code);
  for (const DataType& type : kDataTypes) {
    if (type.code != code) continue;
    if (type.element) return *type.element;
    name = type.name;
  }
  throw Error(concat(path, ": the voxels have NIfTI type ", name,
                     ", which cannot be read; save them as one of uint8, int8, uint16, int16, uint32, int32, "
                     "float32, float64"));
}

int64_t to_offset(double value, const std::string& path) {
  VOX_CHECK(value >= 0 && value < 0x1p62 && value == std::floor(value), path, ": vox_offset is ", value,
            "; expected the number of a byte in the file");
  return static_cast<int64_t>(value);
}

void parse_version1(const Fields& fields, const std::string& path, NiftiHeader* header) {
  fields.get<int16_t>(40, &header->dim);
  header->datatype = fields.get<int16_t>(70);
  fields.get<float>(76, &header->pixdim);
  header->vox_offset = to_offset(fields.get<float>(108), path);
  header->scl_slope = fields.get<float>(112);
  header->scl_inter = fields.get<float>(116);
  header->xyzt_units = fields.get<uint8_t>(123);
  header->qform_code = fields.get<int16_t>(252);
  header->sform_code = fields.get<int16_t>(254);
  fields.get<float>(256, &header->quaternion);
  fields.get<float>(268, &header->qoffset);
  for (size_t row = 0; row < 3; ++row) fields.get<float>(280 + 16 * row, &header->srow[row]);
}

void parse_version2(const Fields& fields, const std::string& path, NiftiHeader* header) {
  fields.get<int64_t>(16, &header->dim);
  header->datatype = fields.get<int16_t>(12);
  fields.get<double>(104, &header->pixdim);
  header->vox_offset = to_offset(static_cast<double>(fields.get<int64_t>(168)), path);
  header->scl_slope = fields.get<double>(176);
  header->scl_inter = fields.get<double>(184);
  header->xyzt_units = fields.get<int32_t>(500);
  header->qform_code = fields.get<int32_t>(344);
  header->sform_code = fields.get<int32_t>(348);
  fields.get<double>(352, &header->quaternion);
  fields.get<double>(376, &header->qoffset);
  for (size_t row = 0; row < 3; ++row) fields.get<double>(400 + 32 * row, &header->srow[row]);
}

int32_t first_int(std::span<const std::byte> head) {
  return Fields(head, false).get<int32_t>(0);
}
bool has_text(std::span<const std::byte> head, size_t offset, const char* text) {
  return head.size() >= offset + 3 && std::memcmp(head.data() + offset, text, 3) == 0;
}

}  // namespace

int64_t nifti_header_bytes(std::span<const std::byte> first_four) {
  if (first_four.size() < 4) return 0;
  const int32_t native = first_int(first_four);
  const int32_t swapped = Fields(first_four, true).get<int32_t>(0);
  for (const int64_t bytes : {kNifti1Bytes, kNifti2Bytes})
    if (native == bytes || swapped == bytes) return bytes;
  return 0;
}

bool is_nifti(std::span<const std::byte> head) {
  const int64_t bytes = nifti_header_bytes(head);
  if (bytes == kNifti1Bytes) return has_text(head, 344, "n+1") || has_text(head, 344, "ni1");
  return bytes == kNifti2Bytes && (has_text(head, 4, "n+2") || has_text(head, 4, "ni2"));
}

NiftiHeader parse_nifti_header(std::span<const std::byte> bytes, const std::string& path) {
  VOX_CHECK(is_nifti(bytes), path, ": this is not a NIfTI file",
            nifti_header_bytes(bytes) == kNifti1Bytes ? " but an older Analyze header; convert it to NIfTI" : "",
            " (its header does not say n+1, ni1, n+2 or ni2)");
  NiftiHeader header;
  header.version = nifti_header_bytes(bytes) == kNifti1Bytes ? 1 : 2;
  header.swap_bytes = first_int(bytes) != nifti_header_bytes(bytes);
  header.data_in_other_file = bytes[header.version == 1 ? 345 : 5] == std::byte{'i'};
  const Fields fields(bytes, header.swap_bytes);
  if (header.version == 1)
    parse_version1(fields, path, &header);
  else
    parse_version2(fields, path, &header);
  return header;
}

RawLayout nifti_layout(const NiftiHeader& header, const std::string& path) {
  const int64_t axes = header.dim[0];
  VOX_CHECK(axes >= 1 && axes <= 7, path, ": the NIfTI header claims ", axes, " axes; expected 1 to 7");
  RawLayout layout;
  layout.type = element_of(header.datatype, path);
  layout.swap_bytes = header.swap_bytes && size_of(layout.type) > 1;
  const int64_t first_possible =
      header.data_in_other_file ? 0 : (header.version == 1 ? kNifti1Bytes : kNifti2Bytes) + kExtensionFlagBytes;
  layout.offset = header.vox_offset == 0 ? first_possible : header.vox_offset;
  VOX_CHECK(layout.offset >= first_possible, path, ": vox_offset is ", layout.offset,
            ", inside the header; expected at least ", first_possible);
  for (size_t axis = 1; axis <= static_cast<size_t>(axes); ++axis) {
    if (axis <= 3) {
      layout.sizes[4 - axis] = header.dim[axis];
    } else if (header.dim[axis] != 1) {
      VOX_CHECK(layout.sizes[0] == 1, path, ": the image varies along both axis 4 or 5 and axis ", axis,
                " (time and vector); expected at most one axis beyond x, y, z");
      layout.sizes[0] = header.dim[axis];
    }
  }
  layout.strides = dense_strides(layout.sizes, {0, 1, 2, 3});
  return layout;
}

namespace {

double millimetres(int xyzt_units) {
  const int unit = xyzt_units & 7;
  return unit == 1 ? 1000.0 : unit == 3 ? 0.001 : 1.0;  // metre, micron; mm or not said
}

// nifti1.h, method 2: a rotation given as a unit quaternion, the spacing, and a possible flip of z.
Affine qform_affine(const NiftiHeader& header) {
  auto [b, c, d] = header.quaternion;
  const double rest = 1 - (b * b + c * c + d * d);
  const double norm = rest < 1e-7 ? std::sqrt(b * b + c * c + d * d) : 1;
  const double a = rest < 1e-7 ? 0 : std::sqrt(rest);
  b /= norm, c /= norm, d /= norm;
  const double rotation[3][3] = {{a * a + b * b - c * c - d * d, 2 * (b * c - a * d), 2 * (b * d + a * c)},
                                 {2 * (b * c + a * d), a * a + c * c - b * b - d * d, 2 * (c * d - a * b)},
                                 {2 * (b * d - a * c), 2 * (c * d + a * b), a * a + d * d - b * b - c * c}};
  const double flip = header.pixdim[0] < 0 ? -1 : 1;
  Affine affine{};
  for (size_t row = 0; row < 3; ++row) {
    for (size_t column = 0; column < 3; ++column)
      affine[row][column] = rotation[row][column] * header.pixdim[column + 1] * (column == 2 ? flip : 1);
    affine[row][3] = header.qoffset[row];
  }
  return affine;
}

bool usable(const Affine& affine) {
  for (const auto& row : affine)
    for (const double value : row)
      if (!std::isfinite(value)) return false;
  for (size_t column = 0; column < 3; ++column)
    if (affine[0][column] == 0 && affine[1][column] == 0 && affine[2][column] == 0) return false;
  return true;
}

}  // namespace

VolumeInfo nifti_info(const NiftiHeader& header) {
  VolumeInfo info;
  info.format = "nifti";
  const double unit = millimetres(header.xyzt_units);
  Spacing3 spacing;
  bool said = true;
  for (int axis = 0; axis < 3; ++axis) {
    const double size = std::abs(header.pixdim[static_cast<size_t>(3 - axis)]) * unit;
    said = said && std::isfinite(size) && size > 0;
    spacing[axis] = size;
  }
  if (said) info.spacing = spacing;
  if (header.sform_code > 0 || header.qform_code > 0) {
    Affine affine = header.sform_code > 0 ? header.srow : qform_affine(header);
    for (auto& row : affine)
      for (double& value : row) value *= unit;
    if (usable(affine)) info.affine = affine;
  }
  if (std::isfinite(header.scl_slope) && header.scl_slope != 0) {
    info.scale = header.scl_slope;
    info.offset = std::isfinite(header.scl_inter) ? header.scl_inter : 0;
  }
  return info;
}

namespace {

class FieldWriter {
 public:
  explicit FieldWriter(size_t bytes) : bytes_(bytes, '\0') {}
  template <class T, class From>
  void put(size_t offset, From value) {
    const T converted = static_cast<T>(value);
    std::memcpy(bytes_.data() + offset, &converted, sizeof(T));
  }
  template <class T, class From, size_t N>
  void put(size_t offset, const std::array<From, N>& values) {
    for (size_t i = 0; i < N; ++i) put<T>(offset + i * sizeof(T), values[i]);
  }
  void put_text(size_t offset, std::string_view text) { std::memcpy(bytes_.data() + offset, text.data(), text.size()); }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

struct WrittenFields {
  int datatype = 0;
  int bits = 0;
  std::array<int64_t, 8> dim{};
  std::array<double, 8> pixdim{};
  double slope = 1, inter = 0;
  bool has_affine = false;
  Affine affine{};
};

Spacing3 spacing_of(const VolumeInfo& info) {
  if (info.spacing || !info.affine) return info.spacing.value_or(Spacing3{});
  Spacing3 spacing;
  for (int axis = 0; axis < 3; ++axis) {
    const size_t column = static_cast<size_t>(2 - axis);
    const Affine& m = *info.affine;
    spacing[axis] = std::hypot(m[0][column], m[1][column], m[2][column]);
  }
  return spacing;
}

WrittenFields fields_for(const VolumeInfo& info) {
  WrittenFields fields;
  for (const DataType& type : kDataTypes)
    if (type.element && dtype_read_as(*type.element) == info.dtype) fields.datatype = type.code;
  VOX_ASSERT(fields.datatype != 0);
  fields.bits = static_cast<int>(8 * size_of(info.dtype));
  const int64_t axes = info.channels > 1 ? 4 : 3;
  fields.dim = {axes, info.extent.x, info.extent.y, info.extent.z, info.channels, 1, 1, 1};
  const Spacing3 spacing = spacing_of(info);
  fields.pixdim = {1, spacing.x_mm, spacing.y_mm, spacing.z_mm, 1, 1, 1, 1};
  fields.slope = info.scale;
  fields.inter = info.offset;
  fields.has_affine = info.affine.has_value();
  fields.affine = info.affine.value_or(Affine{});
  return fields;
}

constexpr int kMillimetres = 2, kAligned = 2;
constexpr size_t kVoxOffset1 = 352, kVoxOffset2 = 544;

std::string version1(const WrittenFields& fields) {
  FieldWriter out(kVoxOffset1);
  out.put<int32_t>(0, kNifti1Bytes);
  out.put_text(38, "r");
  out.put<int16_t>(40, fields.dim);
  out.put<int16_t>(70, fields.datatype);
  out.put<int16_t>(72, fields.bits);
  out.put<float>(76, fields.pixdim);
  out.put<float>(108, kVoxOffset1);
  out.put<float>(112, fields.slope);
  out.put<float>(116, fields.inter);
  out.put<uint8_t>(123, kMillimetres);
  out.put<int16_t>(254, fields.has_affine ? kAligned : 0);
  for (size_t row = 0; row < 3; ++row) out.put<float>(280 + 16 * row, fields.affine[row]);
  out.put_text(344, "n+1");
  return out.bytes();
}

std::string version2(const WrittenFields& fields) {
  FieldWriter out(kVoxOffset2);
  out.put<int32_t>(0, kNifti2Bytes);
  out.put_text(4, std::string_view("n+2\0\r\n\x1a\n", 8));
  out.put<int16_t>(12, fields.datatype);
  out.put<int16_t>(14, fields.bits);
  out.put<int64_t>(16, fields.dim);
  out.put<double>(104, fields.pixdim);
  out.put<int64_t>(168, kVoxOffset2);
  out.put<double>(176, fields.slope);
  out.put<double>(184, fields.inter);
  out.put<int32_t>(348, fields.has_affine ? kAligned : 0);
  for (size_t row = 0; row < 3; ++row) out.put<double>(400 + 32 * row, fields.affine[row]);
  out.put<int32_t>(500, kMillimetres);
  return out.bytes();
}

}  // namespace

std::string nifti_header_for(const VolumeInfo& info) {
  const WrittenFields fields = fields_for(info);
  const bool fits_version1 =
      *std::max_element(fields.dim.begin(), fields.dim.end()) <= std::numeric_limits<int16_t>::max() &&
      static_cast<float>(fields.slope) == fields.slope && static_cast<float>(fields.inter) == fields.inter;
  return fits_version1 ? version1(fields) : version2(fields);
}

}  // namespace vox
