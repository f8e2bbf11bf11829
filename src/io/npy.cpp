// NumPy's array files (numpy.lib.format, versions 1 to 3): C and Fortran order, both byte orders.
#include "io/npy.h"

#include <bit>
#include <charconv>
#include <cstring>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "io/format.h"

namespace vox {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr int64_t kLongestHeader = 1 << 20;

// Reads the Python dictionary of the header: 'key': value pairs, in any order.
class HeaderText {
 public:
  HeaderText(std::string_view text, const std::string& name) : rest_(text), name_(name) {}

  void expect(char c) { VOX_CHECK(accept(c), name_, ": the NumPy header is damaged: '", c, "' expected"); }
  bool accept(char c) {
    skip_spaces();
    if (rest_.empty() || rest_.front() != c) return false;
    rest_.remove_prefix(1);
    return true;
  }
  std::string quoted() {
    skip_spaces();
    const char quote = rest_.empty() ? '\0' : rest_.front();
    const size_t end = quote == '\'' || quote == '"' ? rest_.find(quote, 1) : std::string_view::npos;
    VOX_CHECK(end != std::string_view::npos, name_,
              ": the NumPy header does not name a plain type; arrays of records cannot be read as a volume");
    const std::string word(rest_.substr(1, end - 1));
    rest_.remove_prefix(end + 1);
    return word;
  }
  bool boolean() {
    skip_spaces();
    const bool value = rest_.substr(0, 4) == "True";
    VOX_CHECK(value || rest_.substr(0, 5) == "False", name_, ": the NumPy header is damaged: True or False expected");
    rest_.remove_prefix(value ? 4 : 5);
    return value;
  }
  std::vector<int64_t> tuple() {
    std::vector<int64_t> values;
    expect('(');
    while (!accept(')')) {
      skip_spaces();
      int64_t value = -1;
      const auto [end, status] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
      VOX_CHECK(status == std::errc() && value >= 0, name_, ": the NumPy header is damaged: its shape does not read");
      rest_.remove_prefix(static_cast<size_t>(end - rest_.data()));
      accept('L');  // Python 2 wrote it
      values.push_back(value);
      if (!accept(',')) {
        expect(')');
        break;
      }
    }
    return values;
  }

 private:
  void skip_spaces() {
    while (!rest_.empty() && (rest_.front() == ' ' || rest_.front() == '\n' || rest_.front() == '\t'))
      rest_.remove_prefix(1);
  }
  std::string_view rest_;
  const std::string& name_;
};

struct NamedElement {
  const char* code;
  ElementType type;
};
constexpr NamedElement kElements[] = {
    {"b1", ElementType::kUInt8},   {"u1", ElementType::kUInt8},   {"i1", ElementType::kInt8},
    {"u2", ElementType::kUInt16},  {"i2", ElementType::kInt16},   {"u4", ElementType::kUInt32},
    {"i4", ElementType::kInt32},   {"u8", ElementType::kUInt64},  {"i8", ElementType::kInt64},
    {"f2", ElementType::kFloat16}, {"f4", ElementType::kFloat32}, {"f8", ElementType::kFloat64}};

ElementType element_of(const std::string& descr, const std::string& name) {
  for (const NamedElement& element : kElements) {
    if (!descr.empty() && descr.substr(1) == element.code) return element.type;
  }
  throw Error(concat(name, ": the array has type \"", printable(descr),
                     "\"; a volume can be bool, an integer, float16, float32 or float64"));
}

const char* code_of(DType dtype) {
  for (const NamedElement& element : kElements) {
    if (element.code[0] != 'b' && dtype_read_as(element.type) == dtype && size_of(element.type) == size_of(dtype))
      return element.code;
  }
  throw Error("internal error: a volume of type bfloat16", Fault::kBug);
}

}  // namespace

bool is_npy(std::span<const std::byte> head) {
  return head.size() >= kMagic.size() && std::memcmp(head.data(), kMagic.data(), kMagic.size()) == 0;
}

int64_t npy_header_bytes(std::span<const std::byte> prefix, const std::string& name) {
  VOX_CHECK(is_npy(prefix) && prefix.size() >= kNpyPrefixBytes, name,
            ": this is not a NumPy array: it does not begin with the bytes \\x93NUMPY and a header");
  const int version = static_cast<int>(prefix[6]);
  VOX_CHECK(version >= 1 && version <= 3, name, ": NumPy format version ", version, " is unknown; known are 1 to 3");
  int64_t length = 0;
  for (int i = version == 1 ? 1 : 3; i >= 0; --i) length = length * 256 + static_cast<int>(prefix[8 + i]);
  VOX_CHECK(length <= kLongestHeader, name, ": the NumPy header claims ", length, " bytes; the file is damaged");
  return (version == 1 ? 10 : 12) + length;
}

NpyHeader parse_npy_header(std::span<const std::byte> header, const std::string& name) {
  NpyHeader result;
  result.bytes = npy_header_bytes(header, name);
  VOX_ASSERT(static_cast<int64_t>(header.size()) >= result.bytes);
  const size_t begin = header[6] == std::byte{1} ? 10 : 12;
  HeaderText text({reinterpret_cast<const char*>(header.data()) + begin, static_cast<size_t>(result.bytes) - begin},
                  name);
  int known_keys = 0;
  text.expect('{');
  while (!text.accept('}')) {
    const std::string key = text.quoted();
    text.expect(':');
    if (key == "descr") {
      result.descr = text.quoted();
    } else if (key == "fortran_order") {
      result.fortran_order = text.boolean();
    } else if (key == "shape") {
      result.shape = text.tuple();
    } else {
      throw Error(concat(name, ": the NumPy header has an unknown key \"", printable(key), "\""));
    }
    ++known_keys;
    text.accept(',');
  }
  VOX_CHECK(known_keys == 3, name, ": the NumPy header is damaged: expected the keys descr, fortran_order and shape");
  return result;
}

RawLayout npy_layout(const NpyHeader& header, const std::string& name) {
  const size_t axes = header.shape.size();
  VOX_CHECK(axes == 3 || axes == 4, name, ": the array has ", axes,
            " axes; expected 3 (z, y, x) or 4 (channel, z, y, x)");
  RawLayout layout;
  layout.type = element_of(header.descr, name);
  layout.swap_bytes = header.descr[0] == '>' && size_of(layout.type) > 1;
  layout.offset = header.bytes;
  std::copy(header.shape.begin(), header.shape.end(), layout.sizes.begin() + (axes == 3 ? 1 : 0));
  const std::array<int, 4> c_order{0, 1, 2, 3}, fortran_order{3, 2, 1, 0};
  layout.strides = dense_strides(layout.sizes, header.fortran_order ? fortran_order : c_order);
  return layout;
}

std::string npy_header_for(const VolumeInfo& info) {
  static_assert(std::endian::native == std::endian::little);
  const std::string order = size_of(info.dtype) == 1 ? "|" : "<";
  const std::string channels = info.channels == 1 ? "" : concat(info.channels, ", ");
  std::string text = concat("{'descr': '", order, code_of(info.dtype), "', 'fortran_order': False, 'shape': (",
                            channels, info.extent.z, ", ", info.extent.y, ", ", info.extent.x, "), }");
  constexpr size_t kAlignment = 64, kPrefix = 10;
  text.append(kAlignment - (kPrefix + text.size() + 1) % kAlignment, ' ');
  text += '\n';
  std::string header(kMagic);
  header += {'\1', '\0', static_cast<char>(text.size() % 256), static_cast<char>(text.size() / 256)};
  return header + text;
}

namespace {

bool matches(std::span<const std::byte> head, const fs::path&) {
  return is_npy(head);
}

std::unique_ptr<VolumeReader> open(const std::string& path) {
  InputFile file(path);
  std::vector<std::byte> head(kNpyPrefixBytes);
  head.resize(static_cast<size_t>(file.read_some(0, head)));
  head.resize(static_cast<size_t>(npy_header_bytes(head, path)));
  file.read(0, head);
  const RawLayout layout = npy_layout(parse_npy_header(head, path), path);
  VolumeInfo info;
  info.format = "npy";
  const PackedRange range{.packing = Packing::kNone, .begin = 0, .end = file.size()};
  return std::make_unique<RawReader>(std::make_unique<ByteSource>(std::move(file), range), layout, info);
}

void write(const std::string& path, const Volume& volume, const WriteOptions& options, ThreadPool*) {
  VOX_CHECK(options.codec.empty() || options.codec == "none", path, ": .npy files are never packed, so codec \"",
            options.codec, "\" cannot be used; write .npz instead");
  OutputFile file(path);
  file.write(npy_header_for(volume.info));
  file.write(std::span(volume.data.data(), static_cast<size_t>(volume.info.bytes())));
  file.commit();
}

}  // namespace

FormatEntry npy_format() {
  return {"npy", "NumPy array, z,y,x or channel,z,y,x", {".npy"}, {"none"}, matches, open, write};
}

}  // namespace vox
