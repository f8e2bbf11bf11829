#include "io/tiff_metadata.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"

namespace vox::tiff {
namespace {

using Fields = std::map<std::string, std::string>;

Fields imagej_fields(const std::string& description) {
  Fields fields;
  for (const std::string& line : split(description, '\n')) {
    const size_t equals = line.find('=');
    if (equals != std::string::npos) fields[trim(line.substr(0, equals))] = trim(line.substr(equals + 1));
  }
  return fields;
}

double number(const Fields& fields, const std::string& name, double otherwise) {
  const auto found = fields.find(name);
  if (found == fields.end()) return otherwise;
  char* end = nullptr;
  const double value = std::strtod(found->second.c_str(), &end);
  return end != found->second.c_str() && std::isfinite(value) ? value : otherwise;
}

int64_t count(const Fields& fields, const std::string& name, int64_t otherwise) {
  const double value = number(fields, name, static_cast<double>(otherwise));
  return value >= 1 && value < 1e12 ? static_cast<int64_t>(value) : otherwise;
}

// Lengths of an unknown or missing unit are taken as they stand: their ratios still hold.
double unit_in_mm(const std::string& unit) {
  const std::string name = lower(unit);
  if (name == "nm" || name == "nanometer") return 1e-6;
  if (name == "um" || name == "micron" || name == "microns" || name == "micrometer" || name == "\\u00b5m" ||
      name == "\xc2\xb5m" || name == "\xb5m")
    return 1e-3;
  if (name == "cm" || name == "centimeter") return 10;
  if (name == "m" || name == "meter") return 1000;
  if (name == "inch" || name == "in") return 25.4;
  return 1;
}

std::optional<Spacing3> make_spacing(double spacing, const std::string& unit, const Directory& directory) {
  const double unit_mm = unit_in_mm(unit);
  const double resolution_mm = directory.resolution_unit == 2 && unit.empty()   ? 25.4
                               : directory.resolution_unit == 3 && unit.empty() ? 10.0
                                                                                : unit_mm;
  const auto side = [&](double resolution) { return resolution > 0 ? resolution_mm / resolution : unit_mm; };
  Spacing3 result{std::abs(spacing) * unit_mm, side(directory.x_resolution), side(directory.x_resolution)};
  result.y_mm = side(directory.y_resolution);
  for (int axis = 0; axis < 3; ++axis)
    if (!std::isfinite(result[axis]) || result[axis] <= 0) return std::nullopt;
  return result;
}

StackFacts imagej_facts(const Directory& directory) {
  const Fields fields = imagej_fields(directory.description);
  StackFacts facts;
  facts.images = count(fields, "images", 0);
  const int64_t slices = count(fields, "slices", 1), channels = count(fields, "channels", 1);
  // Stacks of nothing but "channels" (tifffile's guess for three axes) or "frames" are volumes all the same.
  facts.channels = fields.contains("slices") ? channels : 1;
  facts.time_series = count(fields, "frames", 1) > 1 && (slices > 1 || channels > 1);
  facts.one_directory = directory.pages.size() == 1 && facts.images > 1;
  const auto unit = fields.find("unit");
  if (const double spacing = number(fields, "spacing", 0); spacing != 0)
    facts.spacing = make_spacing(spacing, unit == fields.end() ? "" : unit->second, directory);
  return facts;
}

// Of an array with the axes channel, z, y, x, as in every other format; axes of length 1 are none.
void read_channels(const nlohmann::json& shape, const Directory& directory, StackFacts& facts) {
  if (!std::all_of(shape.begin(), shape.end(), [](const auto& side) { return side.is_number_unsigned(); })) return;
  auto sizes = shape.get<std::vector<int64_t>>();
  const Page& page = directory.pages.front();
  if (sizes.size() < 4 || sizes.back() != page.width || sizes[sizes.size() - 2] != page.height) return;
  sizes.resize(sizes.size() - 2);
  std::erase(sizes, 1);
  int64_t images = 1;
  for (const int64_t size : sizes)
    if (__builtin_mul_overflow(images, size, &images)) return;
  const int64_t there = facts.one_directory ? facts.images : static_cast<int64_t>(directory.pages.size());
  if (sizes.size() < 2 || images != there) return;
  facts.images = images;
  facts.time_series = sizes.size() > 2;
  facts.channels = sizes.front();
  facts.channel_by_channel = true;
}

// tifffile's description is a JSON object with the shape of the array it wrote and what the caller added.
StackFacts tifffile_facts(const Directory& directory) {
  StackFacts facts;
  const auto json = nlohmann::json::parse(directory.description, nullptr, false);
  if (!json.is_object() || !json.contains("shape") || !json["shape"].is_array()) return facts;
  if (json.contains("truncated") && json["truncated"] == true) {
    const Page& page = directory.pages.front();
    double voxels = 1;
    for (const auto& side : json["shape"]) voxels *= side.is_number() ? side.get<double>() : 0;
    const double images = voxels / (static_cast<double>(page.width) * static_cast<double>(page.height));
    facts.images = images >= 1 && images < 1e12 ? static_cast<int64_t>(images) : 0;
    facts.one_directory = directory.pages.size() == 1 && facts.images > 1;
  }
  read_channels(json["shape"], directory, facts);
  if (json.contains("spacing") && json["spacing"].is_number()) {
    const bool named = json.contains("unit") && json["unit"].is_string();
    facts.spacing =
        make_spacing(json["spacing"].get<double>(), named ? json["unit"].get<std::string>() : "", directory);
  }
  return facts;
}

std::string attribute(const std::string& element, const std::string& name) {
  const size_t begin = element.find(" " + name + "=\"");
  if (begin == std::string::npos) return "";
  const size_t from = begin + name.size() + 3, end = element.find('"', from);
  return end == std::string::npos ? "" : element.substr(from, end - from);
}

// <Pixels SizeZ="5" SizeC="2" SizeT="1" DimensionOrder="XYZCT" ...>; of a set of several files nothing is taken.
StackFacts ome_facts(const Directory& directory) {
  StackFacts facts;
  const size_t begin = directory.description.find("<Pixels "), end = directory.description.find('>', begin);
  if (begin == std::string::npos || end == std::string::npos) return facts;
  const std::string pixels = directory.description.substr(begin, end - begin);
  Fields fields;
  for (const char* name : {"SizeZ", "SizeC", "SizeT"}) fields[name] = attribute(pixels, name);
  const int64_t slices = count(fields, "SizeZ", 1), channels = count(fields, "SizeC", 1);
  const int64_t frames = count(fields, "SizeT", 1), pages = static_cast<int64_t>(directory.pages.size());
  if (slices > pages || channels > pages || frames > pages || slices * channels * frames != pages) return facts;
  facts.images = pages;
  facts.time_series = frames > 1 && frames != pages;
  facts.channels = slices > 1 ? channels : 1;
  const std::string order = attribute(pixels, "DimensionOrder");
  facts.channel_by_channel = order.find('Z') < order.find('C');
  return facts;
}

}  // namespace

StackFacts stack_facts(const Directory& directory) {
  if (directory.description.starts_with("ImageJ=")) return imagej_facts(directory);
  if (directory.description.starts_with("{")) return tifffile_facts(directory);
  if (directory.description.find("<OME") != std::string::npos) return ome_facts(directory);
  return {};
}

std::string describe(const VolumeInfo& info) {
  if (!info.spacing && info.channels == 1)
    return concat("{\"shape\": [", info.extent.z, ", ", info.extent.y, ", ", info.extent.x, "]}");
  std::string text = concat("ImageJ=1.11a\nimages=", info.extent.z * info.channels, '\n');
  if (info.channels > 1) text += concat("channels=", info.channels, '\n');
  text += concat("slices=", info.extent.z, "\nhyperstack=true\nmode=grayscale\n");
  if (info.spacing) text += concat("unit=mm\nspacing=", shortest(info.spacing->z_mm), '\n');
  return text + "loop=false\n";
}

Rational nearest_rational(double value) {  // continued fraction, until it is exact or leaves 32 bits
  double rest = value, before_n = 0, before_d = 1, numerator = 1, denominator = 0;
  for (int i = 0; i < 40; ++i) {
    const double whole = std::floor(rest);
    const double next_n = whole * numerator + before_n, next_d = whole * denominator + before_d;
    if (next_n > 4294967295.0 || next_d > 4294967295.0) break;
    before_n = numerator, before_d = denominator;
    numerator = next_n, denominator = next_d;
    const double error = rest - whole;
    if (error < 1e-12 || std::abs(numerator / denominator - value) < 1e-15 * value) break;
    rest = 1 / error;
  }
  if (numerator < 1 || denominator < 1) return value < 1 ? Rational{1, 4294967295u} : Rational{4294967295u, 1};
  return {static_cast<uint32_t>(numerator), static_cast<uint32_t>(denominator)};
}

}  // namespace vox::tiff
