#include "io/nrrd_header.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text.h"

namespace vox::nrrd {
namespace {

using Fields = std::map<std::string, std::string>;

Fields read_fields(std::string_view text, const std::string& path) {
  Fields fields;
  bool first = true;
  for (const std::string& raw : split(text, '\n')) {
    const std::string line = trim(raw);
    const bool magic = std::exchange(first, false);
    const size_t colon = line.find(':');
    if (magic || line.empty() || line.front() == '#' || line.find(":=") != std::string::npos) continue;
    VOX_CHECK(colon != std::string::npos, path, ": the header line \"", printable(line.substr(0, 60)),
              "\" is no \"field: value\"");
    const std::string name = lower(line.substr(0, colon));
    fields[name == "datafile" ? "data file" : name == "centerings" ? "centers" : name] = trim(line.substr(colon + 1));
  }
  return fields;
}

std::string required(const Fields& fields, const std::string& name, const std::string& path) {
  const auto found = fields.find(name);
  VOX_CHECK(found != fields.end(), path, ": the header has no \"", name, "\"; was it copied completely?");
  return found->second;
}

std::string optional_field(const Fields& fields, const std::string& name) {
  const auto found = fields.find(name);
  return found == fields.end() ? "" : found->second;
}

std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words;
  for (const std::string& word : split(text, ' '))
    if (!trim(word).empty()) words.push_back(trim(word));
  return words;
}

template <class T>
T number(const std::string& text, const std::string& field, const std::string& path) {
  T value{};
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  VOX_CHECK(status == std::errc() && end == text.data() + text.size(), path, ": \"", field, "\" has \"",
            printable(text), "\", which is no number");
  return value;
}

ElementType element_of(const std::string& name, const std::string& path) {
  static const std::map<std::string, ElementType> kNames = [] {
    std::map<std::string, ElementType> names;
    const std::pair<const char*, ElementType> kLists[] = {
        {"signed char|int8|int8_t", ElementType::kInt8},
        {"uchar|unsigned char|uint8|uint8_t", ElementType::kUInt8},
        {"short|short int|signed short|signed short int|int16|int16_t", ElementType::kInt16},
        {"ushort|unsigned short|unsigned short int|uint16|uint16_t", ElementType::kUInt16},
        {"int|signed int|int32|int32_t", ElementType::kInt32},
        {"uint|unsigned int|uint32|uint32_t", ElementType::kUInt32},
        {"longlong|long long|long long int|signed long long|signed long long int|int64|int64_t", ElementType::kInt64},
        {"ulonglong|unsigned long long|unsigned long long int|uint64|uint64_t", ElementType::kUInt64},
        {"float", ElementType::kFloat32},
        {"double", ElementType::kFloat64}};
    for (const auto& [list, type] : kLists)
      for (const std::string& one : split(list, '|')) names[one] = type;
    return names;
  }();
  const auto found = kNames.find(lower(name));
  VOX_CHECK(found != kNames.end(), path, ": the type \"", printable(name),
            "\" is unknown; a volume holds plain numbers");
  return found->second;
}

const char* type_name(DType dtype) {
  return dtype == DType::kFloat32 ? "float" : dtype == DType::kFloat64 ? "double" : name_of(dtype);
}

using Vector = std::array<double, 3>;

// "(1,0,0) none (0,0,2)": one a axis; nothing where the axis does not lie in space.
std::vector<std::optional<Vector>> vectors_of(const std::string& text, const std::string& field,
                                              const std::string& path) {
  std::vector<std::optional<Vector>> vectors;
  for (size_t at = 0; at < text.size();) {
    if (text[at] == ' ') {
      ++at;
    } else if (text.compare(at, 4, "none") == 0) {
      vectors.emplace_back();
      at += 4;
    } else {
      const size_t end = text.find(')', at);
      VOX_CHECK(text[at] == '(' && end != std::string::npos, path, ": \"", field, "\" is \"", printable(text),
                "\"; expected vectors (a,b,c)");
      const std::vector<std::string> parts = split(text.substr(at + 1, end - at - 1), ',');
      VOX_CHECK(parts.size() == 3, path, ": \"", field, "\" has vectors of ", parts.size(), " numbers; expected three");
      Vector vector;
      for (size_t i = 0; i < 3; ++i) vector[i] = number<double>(trim(parts[i]), field, path);
      vectors.emplace_back(vector);
      at = end + 1;
    }
  }
  return vectors;
}

// Which axis is the channel, of four: the one that does not lie in space; where nothing is said, the slowest.
size_t channel_axis(const Fields& fields, size_t rank, const std::string& path) {
  const auto directions = vectors_of(optional_field(fields, "space directions"), "space directions", path);
  if (directions.size() == rank)
    for (size_t axis = 0; axis < rank; ++axis)
      if (!directions[axis]) return axis;
  const std::vector<std::string> kinds = words_of(optional_field(fields, "kinds"));
  if (kinds.size() == rank)
    for (size_t axis = 0; axis < rank; ++axis)
      if (lower(kinds[axis]) != "domain" && lower(kinds[axis]) != "space") return axis;
  return rank - 1;
}

void read_layout(const Fields& fields, Header& header, const std::string& path) {
  header.layout.type = element_of(required(fields, "type", path), path);
  const int64_t rank = number<int64_t>(required(fields, "dimension", path), "dimension", path);
  const std::vector<std::string> sizes = words_of(required(fields, "sizes", path));
  VOX_CHECK(rank == 3 || rank == 4, path, ": the array has ", rank, " axes; expected 3 (x, y, z) or 4 with a channel");
  VOX_CHECK(static_cast<int64_t>(sizes.size()) == rank, path, ": \"sizes\" has ", sizes.size(), " numbers for ", rank,
            " axes");
  const size_t channel = rank == 4 ? channel_axis(fields, 4, path) : 4;
  std::array<int, 4> order{0, 1, 2, 3};  // of channel, z, y, x, the slowest first
  int spatial = 3;
  for (size_t axis = 0; axis < sizes.size(); ++axis) {
    const int place = axis == channel ? 0 : spatial--;
    header.layout.sizes[static_cast<size_t>(place)] = number<int64_t>(sizes[axis], "sizes", path);
    order[static_cast<size_t>(3 - static_cast<int>(axis))] = place;
  }
  header.layout.strides = dense_strides(header.layout.sizes, order);
}

// Zero, infinity and NaN say nothing of the distance between voxels; a sign says which way they run.
std::optional<Spacing3> usable(const Vector& of_x_y_z) {
  Spacing3 spacing;
  for (int axis = 0; axis < 3; ++axis) {
    spacing[axis] = std::abs(of_x_y_z[static_cast<size_t>(2 - axis)]);
    if (!std::isfinite(spacing[axis]) || spacing[axis] == 0) return std::nullopt;
  }
  return spacing;
}

bool is_finite(const Vector& vector) {
  return std::all_of(vector.begin(), vector.end(), [](double value) { return std::isfinite(value); });
}

void read_place(const Fields& fields, Header& header, const std::string& path) {
  const auto directions = vectors_of(optional_field(fields, "space directions"), "space directions", path);
  std::vector<Vector> axes;  // of x, y, z
  for (const auto& direction : directions)
    if (direction) axes.push_back(*direction);
  if (axes.size() != 3) {
    std::vector<double> spacings;
    for (const std::string& word : words_of(optional_field(fields, "spacings")))
      if (lower(word) != "nan") spacings.push_back(number<double>(word, "spacings", path));
    if (spacings.size() == 3) header.spacing = usable({spacings[0], spacings[1], spacings[2]});
    return;
  }
  Vector lengths;
  for (size_t i = 0; i < 3; ++i) lengths[i] = std::hypot(axes[i][0], axes[i][1], axes[i][2]);
  header.spacing = usable(lengths);
  const std::string space = lower(optional_field(fields, "space"));
  const bool lps = space == "left-posterior-superior" || space == "lps";
  const bool las = space == "left-anterior-superior" || space == "las";
  const bool ras = space == "right-anterior-superior" || space == "ras";
  if (!header.spacing || (!lps && !las && !ras)) return;
  const auto origins = vectors_of(optional_field(fields, "space origin"), "space origin", path);
  const Vector origin = origins.size() == 1 && origins[0] ? *origins[0] : Vector{0, 0, 0};
  if (!is_finite(origin)) return;
  const double signs[3] = {ras ? 1.0 : -1.0, lps ? -1.0 : 1.0, 1.0};
  Affine affine{};
  for (size_t row = 0; row < 3; ++row) {
    for (size_t column = 0; column < 3; ++column) affine[row][column] = signs[row] * axes[column][row];
    affine[row][3] = signs[row] * origin[row];
  }
  header.affine = affine;
}

}  // namespace

Header parse_header(std::string_view text, const std::string& path) {
  const Fields fields = read_fields(text, path);
  Header header;
  read_layout(fields, header, path);
  const std::string encoding = lower(required(fields, "encoding", path));
  header.gzip = encoding == "gzip" || encoding == "gz";
  VOX_CHECK(header.gzip || encoding == "raw", path, ": the encoding \"", printable(encoding),
            "\" is unknown; known are raw, gzip");
  const std::string endian = lower(optional_field(fields, "endian"));
  const bool wide = size_of(header.layout.type) > 1;
  VOX_CHECK(!wide || endian == "little" || endian == "big", path, ": \"endian\" is \"", printable(endian),
            "\"; expected little or big");
  header.layout.swap_bytes = wide && endian == "big";
  header.data_file = optional_field(fields, "data file");
  const bool one_file = header.data_file.find('%') == std::string::npos && !header.data_file.starts_with("LIST");
  VOX_CHECK(one_file, path, ": the data lie in several files (\"", printable(header.data_file), "\"); expected one");
  const std::string line_skip = optional_field(fields, "line skip"), byte_skip = optional_field(fields, "byte skip");
  if (!line_skip.empty()) header.line_skip = number<int64_t>(line_skip, "line skip", path);
  if (!byte_skip.empty()) header.layout.offset = number<int64_t>(byte_skip, "byte skip", path);
  header.data_at_end = header.layout.offset == -1 && !header.gzip;
  if (header.data_at_end) header.layout.offset = 0;
  VOX_CHECK(header.line_skip >= 0 && header.layout.offset >= 0, path, ": \"line skip\" or \"byte skip\" is negative");
  read_place(fields, header, path);
  return header;
}

std::string header_for(const VolumeInfo& info, bool gzip, const std::string& data_file) {
  const bool channels = info.channels > 1;
  std::string text =
      concat("NRRD0005\n# written by voxloom\ntype: ", type_name(info.dtype), "\ndimension: ", channels ? 4 : 3, "\n");
  if (info.affine) {
    const Affine& m = *info.affine;
    const auto column = [&](size_t i) {
      return concat("(", shortest(m[0][i]), ",", shortest(m[1][i]), ",", shortest(m[2][i]), ")");
    };
    text += "space: right-anterior-superior\nspace directions: " + column(0) + " " + column(1) + " " + column(2) +
            (channels ? " none" : "") + "\nspace origin: " + column(3) + "\n";
  } else if (info.spacing) {
    text += concat("spacings: ", shortest(info.spacing->x_mm), " ", shortest(info.spacing->y_mm), " ",
                   shortest(info.spacing->z_mm), channels ? " NaN" : "", "\n");
  }
  if (channels) text += "kinds: domain domain domain list\n";
  text += concat("sizes: ", info.extent.x, " ", info.extent.y, " ", info.extent.z);
  if (channels) text += concat(" ", info.channels);
  text += concat("\nendian: little\nencoding: ", gzip ? "gzip" : "raw", "\n");
  text += data_file.empty() ? "\n" : "data file: " + data_file + "\n";
  return text;
}

}  // namespace vox::nrrd
