// OpenKBP patient folders. Without a dataset the folder is the network's input: CT, then the ten structures, as int16.
// `folder:ct`, `folder:dose`, `folder:possible_dose_mask`, `folder:<structure>` are one channel each, `folder:masks`
// the ten structures, `folder:prescription` the Gy that a voxel of a target is to get, `folder:plan` a dose that beams
// can give. A channel costs the parsing of its own files and of no others.
#include "io/openkbp.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstring>
#include <mutex>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "io/folder_write.h"
#include "io/format.h"
#include "io/openkbp_csv.h"
#include "io/openkbp_plan.h"

namespace vox {
namespace {

constexpr const char* kPrescription = "prescription";
constexpr const char* kPlan = "plan";
struct Target {
  const char* structure;
  uint8_t dose_gy;
};
constexpr std::array<Target, 3> kTargets{{{"PTV56", 56}, {"PTV63", 63}, {"PTV70", 70}}};

constexpr Extent3 kExtent{kOpenKbpSide, kOpenKbpSide, kOpenKbpSide};

std::string csv(const std::string& folder, const std::string& name) {
  return (fs::path(folder) / (name + ".csv")).string();
}

Spacing3 read_spacing(const std::string& folder) {
  const std::string path = csv(folder, "voxel_dimensions"), text = read_file(path);
  Spacing3 spacing;
  const char* at = text.data();
  const char* end = at + text.size();
  for (int axis = 0; axis < 3; ++axis) {
    while (at < end && (*at == '\n' || *at == '\r' || *at == ' ')) ++at;
    const auto [stop, status] = std::from_chars(at, end, spacing[axis]);
    VOX_CHECK(status == std::errc() && spacing[axis] > 0 && spacing[axis] < 1e6, path,
              ": expected three positive numbers (mm), one a line");
    at = stop;
  }
  return spacing;
}

void require_patient(const std::string& folder) {
  for (const char* name : {"ct", "dose", "possible_dose_mask", "voxel_dimensions"}) {
    const bool optional = std::strcmp(name, "dose") == 0;  // unknown for a patient yet to be planned
    VOX_CHECK(optional || fs::exists(csv(folder, name)), csv(folder, name),
              ": no such file; an OpenKBP patient has ct.csv, possible_dose_mask.csv and voxel_dimensions.csv");
  }
}

void set_to_zero(void* voxels, int64_t bytes_each) {
  std::memset(voxels, 0, static_cast<size_t>(kOpenKbpVoxels * bytes_each));
}

void read_all_bits(const std::string& folder, uint16_t* bits) {
  read_sparse_mask(csv(folder, "possible_dose_mask"), bits, 1 << kOpenKbpDoseMaskBit, Others::kBecomeZero);
  for (size_t i = 0; i < kOpenKbpStructures.size(); ++i) {
    const std::string path = csv(folder, kOpenKbpStructures[i]);
    if (fs::exists(path)) read_sparse_mask(path, bits, static_cast<uint16_t>(1u << i), Others::kStay);
  }
}

}  // namespace

OpenKbpPatient allocate_openkbp() {
  OpenKbpPatient patient;
  patient.ct = Buffer(kOpenKbpVoxels * 2);
  patient.bits = Buffer(kOpenKbpVoxels * 2);
  patient.dose = Buffer(kOpenKbpVoxels * 4);
  return patient;
}

void read_openkbp(const std::string& folder, OpenKbpPatient* patient) {
  require_patient(folder);
  patient->spacing = read_spacing(folder);
  read_sparse_int16(csv(folder, "ct"), patient->ct.as<int16_t>(), Others::kBecomeZero);
  if (fs::exists(csv(folder, "dose")))
    read_sparse_float(csv(folder, "dose"), patient->dose.as<float>(), Others::kBecomeZero);
  else
    set_to_zero(patient->dose.data(), 4);
  read_all_bits(folder, patient->bits.as<uint16_t>());
}

namespace {

// Calls value(index, text) for each voxel; where it returns true the line `index,text` is written.
template <class Value>
int64_t write_sparse(const fs::path& path, Value&& value) {
  std::string text = ",data\n", one;
  int64_t rows = 0;
  for (int64_t index = 0; index < kOpenKbpVoxels; ++index) {
    one.clear();
    if (!value(index, &one)) continue;
    text += std::to_string(index);
    text += ',';
    text += one;
    text += '\n';
    ++rows;
  }
  if (rows > 0) write_plainly(path, std::as_bytes(std::span(text)));
  return rows;
}

std::string as_float_text(double value) {  // "18.0", as Python writes it
  const std::string text = shortest(value);
  return text.find_first_of(".en") == std::string::npos ? text + ".0" : text;
}

void write_files(const fs::path& folder, const OpenKbpPatient& patient) {
  const int16_t* ct = patient.ct.as<int16_t>();
  const uint16_t* bits = patient.bits.as<uint16_t>();
  const float* dose = patient.dose.as<float>();
  const auto has = [&](int64_t index, int bit) { return (bits[index] >> bit & 1) != 0; };
  const int64_t body = write_sparse(folder / "ct.csv", [&](int64_t index, std::string* text) {
    if (ct[index] != 0) *text = as_float_text(ct[index]);
    return ct[index] != 0;
  });
  const int64_t dosed = write_sparse(folder / "dose.csv", [&](int64_t index, std::string* text) {
    const bool there = has(index, kOpenKbpDoseMaskBit) || dose[index] != 0;
    if (there) *text = as_float_text(std::round(static_cast<double>(dose[index]) * 1000) / 1000);
    return there;
  });
  VOX_CHECK(body > 0 && dosed > 0, folder.string(), ": a patient needs CT values and a possible dose mask");
  write_sparse(folder / "possible_dose_mask.csv",
               [&](int64_t index, std::string*) { return has(index, kOpenKbpDoseMaskBit); });
  for (size_t s = 0; s < kOpenKbpStructures.size(); ++s)
    write_sparse(folder / concat(kOpenKbpStructures[s], ".csv"),
                 [&](int64_t index, std::string*) { return has(index, static_cast<int>(s)); });
  std::string spacing;
  for (int axis = 0; axis < 3; ++axis) spacing += shortest(patient.spacing[axis]) + "\n";
  write_plainly(folder / "voxel_dimensions.csv", std::as_bytes(std::span(spacing)));
}

}  // namespace

void write_openkbp(const std::string& folder, const OpenKbpPatient& patient) {
  FolderWrite output(folder);
  write_files(output.temporary(), patient);
  output.commit();
}

namespace {

class OpenKbpReader final : public VolumeReader {
 public:
  OpenKbpReader(const std::string& folder, const std::vector<std::string>& channels, DType dtype)
      : folder_(folder), channels_(channels) {
    require_patient(folder);
    info_.dtype = dtype;
    info_.extent = kExtent;
    info_.channels = static_cast<int64_t>(channels.size());
    info_.spacing = read_spacing(folder);
    info_.format = "openkbp";
    info_.codec = "csv";
    info_.chunk = kExtent;  // a box costs the whole file
  }

  void read(const Box3& box, int64_t channel, std::byte* out, ThreadPool*) const override {
    VOX_ASSERT(!box.empty() && whole(kExtent).contains(box) && channel >= 0 && channel < info_.channels);
    const std::string& name = channels_[static_cast<size_t>(channel)];
    if (box == whole(kExtent)) return read_whole(name, out);
    const int64_t size = size_of(info_.dtype), row = box.extent().x * size;
    Buffer dense(kOpenKbpVoxels * size);
    read_whole(name, dense.data());
    for (int64_t z = box.begin.z; z < box.end.z; ++z) {
      for (int64_t y = box.begin.y; y < box.end.y; ++y, out += row) {
        const int64_t from = (z * kOpenKbpSide + y) * kOpenKbpSide + box.begin.x;
        std::memcpy(out, dense.data() + from * size, static_cast<size_t>(row));
      }
    }
  }

 private:
  void read_whole(const std::string& name, std::byte* out) const {
    if (name == kPrescription) return read_prescription(reinterpret_cast<uint8_t*>(out));
    if (name == kPlan) {
      std::call_once(planned_, [&] { make_plan(); });
      std::memcpy(out, plan_.data(), static_cast<size_t>(plan_.size()));
      return;
    }
    if (info_.dtype == DType::kUInt8) return read_mask_bytes(name, reinterpret_cast<uint8_t*>(out));
    const std::string path = csv(folder_, name);
    if (name == "dose") return read_sparse_float(path, reinterpret_cast<float*>(out), Others::kBecomeZero);
    if (name == "ct") return read_sparse_int16(path, reinterpret_cast<int16_t*>(out), Others::kBecomeZero);
    if (name == "bits") return read_all_bits(folder_, reinterpret_cast<uint16_t*>(out));
    read_structure(path, reinterpret_cast<uint16_t*>(out));  // int16 1 has the same bits
  }
  void read_mask_bytes(const std::string& name, uint8_t* out) const {
    Buffer wide(kOpenKbpVoxels * 2);
    read_structure(csv(folder_, name), wide.as<uint16_t>());
    for (int64_t i = 0; i < kOpenKbpVoxels; ++i) out[i] = static_cast<uint8_t>(wide.as<uint16_t>()[i]);
  }
  void make_plan() const {
    Buffer ct(kOpenKbpVoxels * 2), bits(kOpenKbpVoxels * 2);
    read_sparse_int16(csv(folder_, "ct"), ct.as<int16_t>(), Others::kBecomeZero);
    read_all_bits(folder_, bits.as<uint16_t>());
    plan_ = Buffer(kOpenKbpVoxels * 4);
    plan_openkbp_dose({ct.as<int16_t>(), bits.as<uint16_t>(), *info_.spacing}, plan_.as<float>());
  }
  void read_prescription(uint8_t* out) const {
    Buffer bits(kOpenKbpVoxels * 2);
    set_to_zero(bits.data(), 2);
    for (size_t i = 0; i < kTargets.size(); ++i)
      if (const std::string path = csv(folder_, kTargets[i].structure); fs::exists(path))
        read_sparse_mask(path, bits.as<uint16_t>(), static_cast<uint16_t>(1u << i), Others::kStay);
    std::array<uint8_t, 1 << kTargets.size()> highest{};  // of the targets that a voxel lies in
    for (size_t i = 0; i < kTargets.size(); ++i)
      std::fill(highest.begin() + (1 << i), highest.begin() + (2 << i), kTargets[i].dose_gy);
    for (int64_t i = 0; i < kOpenKbpVoxels; ++i) out[i] = highest[bits.as<uint16_t>()[i]];
  }
  static void read_structure(const std::string& path, uint16_t* out) {
    if (fs::exists(path)) return read_sparse_mask(path, out, 1, Others::kBecomeZero);
    set_to_zero(out, 2);
  }

  const std::string folder_;
  const std::vector<std::string> channels_;  // names of files
  mutable std::once_flag planned_;           // a plan takes longer than a file: boxes share it
  mutable Buffer plan_;
};

const std::vector<std::string>& structures() {
  static const std::vector<std::string> names(kOpenKbpStructures.begin(), kOpenKbpStructures.end());
  return names;
}

bool matches(std::span<const std::byte> head, const fs::path& path) {
  std::error_code ignored;
  return head.empty() && fs::exists(path / "voxel_dimensions.csv", ignored) &&
         (fs::exists(path / "ct.csv", ignored) || fs::exists(path / "dose.csv", ignored));
}

std::unique_ptr<VolumeReader> open_dataset(const std::string& path, const std::string& dataset) {
  if (dataset == "ct") return std::make_unique<OpenKbpReader>(path, std::vector{dataset}, DType::kInt16);
  if (dataset == "bits") return std::make_unique<OpenKbpReader>(path, std::vector{dataset}, DType::kUInt16);
  if (dataset == kPlan) return std::make_unique<OpenKbpReader>(path, std::vector{dataset}, DType::kFloat32);
  if (dataset == "masks") return std::make_unique<OpenKbpReader>(path, structures(), DType::kUInt8);
  if (dataset == "dose") {
    VOX_CHECK(fs::exists(csv(path, "dose")), csv(path, "dose"), ": no such file; this patient has no dose");
    return std::make_unique<OpenKbpReader>(path, std::vector{dataset}, DType::kFloat32);
  }
  const bool structure = std::find(structures().begin(), structures().end(), dataset) != structures().end();
  VOX_CHECK(structure || dataset == "possible_dose_mask" || dataset == kPrescription, path,
            ": an OpenKBP patient has no \"", dataset,
            "\"; known are ct, dose, possible_dose_mask, prescription, plan, masks, bits, ", join(structures(), ", "));
  return std::make_unique<OpenKbpReader>(path, std::vector{dataset}, DType::kUInt8);
}

std::unique_ptr<VolumeReader> open(const std::string& path) {
  std::vector<std::string> channels{"ct"};
  channels.insert(channels.end(), structures().begin(), structures().end());
  return std::make_unique<OpenKbpReader>(path, channels, DType::kInt16);
}

}  // namespace

FormatEntry openkbp_format() {
  FormatEntry entry{
      "openkbp",
      "OpenKBP patient folder of sparse CSV: CT and ten structures; :dose, :possible_dose_mask, :prescription, :plan, "
      ":PTV70 ...",
      {".openkbp"},
      {},
      matches,
      open,
      nullptr};
  entry.open_dataset = open_dataset;
  return entry;
}

}  // namespace vox
