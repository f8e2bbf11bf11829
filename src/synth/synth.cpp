#include "synth/synth.h"

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"

namespace vox {

#define VOX_SYNTH(name) SynthEntry name##_synth();
#include "synth/synths.list"
#undef VOX_SYNTH

const std::vector<SynthEntry>& all_synths() {
#define VOX_SYNTH(name) name##_synth(),
  static const std::vector<SynthEntry> entries{
#include "synth/synths.list"
  };
#undef VOX_SYNTH
  return entries;
}

namespace {

const SynthEntry& entry_of(const std::string& kind) {
  std::vector<std::string> known;
  for (const SynthEntry& entry : all_synths()) {
    if (entry.name == kind) return entry;
    known.push_back(entry.name);
  }
  throw Error(concat("unknown synthetic data \"", kind, "\"; known: ", join(known, ", ")));
}

std::string description_of(const std::string& kind, const SynthRequest& request) {
  return concat("{\"kind\": \"", kind, "\", \"count\": ", request.count, ", \"size\": [", request.size.z, ", ",
                request.size.y, ", ", request.size.x, "], \"seed\": ", request.seed, ", \"suffix\": \"", request.suffix,
                "\"", request.thickness == 1 ? "" : concat(", \"thickness\": ", shortest(request.thickness)), "}\n");
}

constexpr const char* kRecord = ".synth.json";
constexpr int64_t kMostVolumes = 1'000'000, kLongestSide = 65536;  // as those of data.synth

// Before anything is written.
void check_request(const std::string& kind, const SynthRequest& request) {
  VOX_CHECK(request.thickness == 1 || kind == "mitochondria", "sections of ", kind,
            " are as thick as voxels are wide; only mitochondria take another thickness");
  VOX_CHECK(request.thickness >= 0.1 && request.thickness <= 100, "a section of ", request.thickness,
            " voxel widths cannot be made; expected 0.1 to 100");
  VOX_CHECK(!request.folder.empty(), "synthetic data needs a folder to be made in, and its name is empty");
  VOX_CHECK(request.count > 0 && request.count <= kMostVolumes, "synthetic data needs a count of 1 to ", kMostVolumes,
            ", not ", request.count);
  const Extent3 openkbp{128, 128, 128};
  VOX_CHECK(!request.suffix.empty() || request.size == openkbp, "the OpenKBP layout holds ", openkbp, " voxels, not ",
            request.size, "; leave --size out, or choose another --format");
  VOX_CHECK(request.size.z > 0 && request.size.y > 0 && request.size.x > 0, "volumes of size ", request.size,
            " have no voxels");
  VOX_CHECK(std::max({request.size.z, request.size.y, request.size.x}) <= kLongestSide, "volumes of size ",
            request.size, " are too large; a side has at most ", kLongestSide, " voxels");
}

// `rm FOLDER/*` leaves the record, which begins with a dot.
bool holds_data(const fs::path& folder) {
  return std::any_of(fs::directory_iterator(folder), fs::directory_iterator(),
                     [](const auto& entry) { return !entry.path().filename().string().starts_with('.'); });
}

bool is_made(const fs::path& folder) {
  return fs::exists(folder / kRecord) && holds_data(folder);
}

void require_same_request(const fs::path& folder, const std::string& description) {
  const std::string made_by = read_file(folder / kRecord);
  VOX_CHECK(made_by == description, folder.string(), " holds synthetic data of another request (", trim(made_by),
            "), not ", trim(description), "; remove the folder or name another one");
}

}  // namespace

void check_synthetic(const std::string& kind, const SynthRequest& request) {
  entry_of(kind);
  check_request(kind, request);
  if (is_made(request.folder)) require_same_request(request.folder, description_of(kind, request));
}

void make_synthetic(const std::string& kind, const SynthRequest& request, ThreadPool& pool) {
  check_synthetic(kind, request);
  const fs::path folder(request.folder);
  const std::string description = description_of(kind, request);
  const FileLock lock(folder / ".synth.lock", "", FileLock::IfHeld::kWait);
  if (is_made(folder)) return require_same_request(folder, description);
  fs::remove(folder / kRecord);  // until all is made
  entry_of(kind).make(request, pool);
  write_file(folder / kRecord, description);
}

}  // namespace vox
