#include "cli/dose_source.h"

#include <charconv>
#include <cstring>
#include <memory>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "io/format.h"
#include "io/openkbp.h"
#include "io/openkbp_csv.h"

namespace vox::cli {
namespace {

constexpr Extent3 kExtent{kOpenKbpSide, kOpenKbpSide, kOpenKbpSide};

[[noreturn]] void refuse_line(const std::string& path, int64_t line) {
  throw Error(concat(path, ": line ", line, " is not `index,dose` with an index from 0 to ", kOpenKbpVoxels - 1,
                     " and a number; expected the sparse CSV of OpenKBP."));
}

// A header and no rows is a dose of zero.
std::vector<double> read_sparse_dose(const std::string& path) {
  const std::string text = read_file(path);
  VOX_CHECK(text.starts_with(",data"), path,
            ": the file does not begin with the line \",data\"; expected the sparse CSV of OpenKBP.");
  std::vector<double> dose(static_cast<size_t>(kOpenKbpVoxels), 0.0);
  const char *at = text.data() + std::strcspn(text.c_str(), "\n"), *end = text.data() + text.size();
  for (int64_t line = 2;; ++line) {
    while (at < end && (*at == '\n' || *at == '\r')) ++at;
    if (at >= end) return dose;
    int64_t index = -1;
    double value = 0;
    const auto [comma, read] = std::from_chars(at, end, index);
    if (read != std::errc() || comma == end || *comma != ',') refuse_line(path, line);
    const auto [stop, parsed] = std::from_chars(comma + 1, end, value);
    const bool ended = stop == end || *stop == '\n' || *stop == '\r';
    if (parsed != std::errc() || !ended || index < 0 || index >= kOpenKbpVoxels) refuse_line(path, line);
    dose[static_cast<size_t>(index)] = value;
    at = stop;
  }
}

template <class T>
VolumeSource source_of_values(const std::string& name, DType dtype, std::vector<T> values) {
  const auto held = std::make_shared<const std::vector<T>>(std::move(values));
  const auto read = [held](const Box3& box, std::byte* out) {
    const size_t row = static_cast<size_t>(box.extent().x) * sizeof(T);
    for (int64_t z = box.begin.z; z < box.end.z; ++z)
      for (int64_t y = box.begin.y; y < box.end.y; ++y, out += row)
        std::memcpy(out, held->data() + (z * kOpenKbpSide + y) * kOpenKbpSide + box.begin.x, row);
  };
  return {.name = name, .info = {.dtype = dtype, .extent = kExtent}, .read = read};
}

VolumeSource mask_source(const std::string& name, const std::string& path) {
  std::vector<uint16_t> mask(static_cast<size_t>(kOpenKbpVoxels), 0);
  read_sparse_mask(path, mask.data(), 1, Others::kBecomeZero);
  return source_of_values(name, DType::kUInt16, std::move(mask));
}

Spacing3 read_spacing(const std::string& path) {
  Spacing3 spacing;
  int axis = 0;
  for (const std::string& line : split(read_file(path), '\n')) {
    const std::string word = trim(line);
    if (word.empty()) continue;
    VOX_CHECK(axis < 3, path, ": expected three numbers (mm), one a line.");
    const auto [stop, status] = std::from_chars(word.data(), word.data() + word.size(), spacing[axis++]);
    VOX_CHECK(status == std::errc() && stop == word.data() + word.size(), path, ": \"", word,
              "\" is no number; expected the size of a voxel in mm.");
  }
  VOX_CHECK(axis == 3 && spacing.z_mm * spacing.y_mm * spacing.x_mm > 0, path,
            ": expected three positive numbers (mm), one a line.");
  return spacing;
}

std::string file_of(const std::string& folder, const std::string& name) {
  return (fs::path(folder) / (name + ".csv")).string();
}

}  // namespace

VolumeSource dose_prediction(const std::string& path) {
  if (fs::is_directory(path) && fs::exists(file_of(path, "dose"))) return dose_prediction(file_of(path, "dose"));
  if (ends_with(path, ".csv")) return source_of_values(path, DType::kFloat64, read_sparse_dose(path));
  const std::shared_ptr<const VolumeReader> reader = open_volume(path);
  return {.name = path, .info = reader->info(), .read = [reader](const Box3& box, std::byte* out) {
            reader->read(box, 0, out, nullptr);
          }};
}

VolumeSource dose_reference(const std::string& folder) {
  for (const char* name : {"dose", "possible_dose_mask", "voxel_dimensions"})
    VOX_CHECK(fs::exists(file_of(folder, name)), file_of(folder, name),
              ": no such file; a dose is scored against an OpenKBP patient, a folder with dose.csv, "
              "possible_dose_mask.csv, voxel_dimensions.csv and the structures.");
  VolumeSource source = dose_prediction(folder);
  source.info.spacing = read_spacing(file_of(folder, "voxel_dimensions"));
  source.parts.push_back(mask_source("possible_dose_mask", file_of(folder, "possible_dose_mask")));
  for (const char* structure : kOpenKbpStructures)
    if (fs::exists(file_of(folder, structure)))
      source.parts.push_back(mask_source(structure, file_of(folder, structure)));
  return source;
}

}  // namespace vox::cli
