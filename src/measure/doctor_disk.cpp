#include "measure/doctor_disk.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "base/random.h"
#include "base/span.h"
#include "base/text.h"
#include "measure/doctor.h"
#include "measure/doctor_files.h"

namespace vox {
namespace {

constexpr int64_t kTrialBytes = int64_t{16} << 20;
constexpr double kSlowWrite = 50, kSlowRead = 100;  // MB/s; a single spinning disk does about 150
constexpr int64_t kLittleRoom = int64_t{5} << 30, kNoRoom = int64_t{256} << 20;

class TrialFile {  // has no name: nothing is left whatever happens
 public:
  explicit TrialFile(const fs::path& folder) {
    std::string name = (folder / ".voxloom-doctor-XXXXXX").string();
    descriptor_ = mkstemp(name.data());
    if (descriptor_ >= 0) unlink(name.c_str());
  }
  ~TrialFile() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  TrialFile(const TrialFile&) = delete;
  TrialFile& operator=(const TrialFile&) = delete;
  int descriptor() const { return descriptor_; }

 private:
  int descriptor_ = -1;
};

std::vector<std::byte> incompressible(int64_t bytes) {
  std::vector<std::byte> block(static_cast<size_t>(bytes));
  uint64_t state = 0x9e3779b97f4a7c15ull;
  for (size_t i = 0; i + 8 <= block.size(); i += 8) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    std::memcpy(block.data() + i, &state, 8);
  }
  return block;
}

std::string speed_text(const DiskSpeed& speed) {
  return concat("writes ", format_number(speed.write_mb_s, 0), " and reads ", format_number(speed.read_mb_s, 0),
                " MB/s");
}

Finding examine_folder(const MachineView& machine, const NamedFolder& folder) {
  const fs::path there = existing_parent(folder.path);
  const std::string path = folder.path.string();
  const DiskSpeed speed = measure_disk(there, kTrialBytes);
  if (!speed.problem.empty())
    return {folder.name, Outlook::kFails, concat(path, " cannot be written: ", speed.problem),
            "touch " + there.string()};
  const int64_t room = free_bytes(there);
  const Mount mount = mount_of(machine, there);
  const std::string facts = concat(path, ": ", human_bytes(room), " free, ", speed_text(speed),
                                   mount.type.empty() ? "" : concat(" (", mount.type, ")"));
  const std::string df = "df -h " + there.string(), where = "findmnt -T " + there.string();
  if (room < kNoRoom) return {folder.name, Outlook::kFails, facts + ": no room for a checkpoint", df};
  if (is_network(mount))
    return {folder.name, Outlook::kHurts,
            concat(facts, ": it lies on the network (", mount.source, "); a local disk answers sooner"), where};
  if (mount.type == "tmpfs" || mount.type == "ramfs")
    return {folder.name, Outlook::kHurts,
            facts + ": it lies in memory, takes it from training, and is lost at a restart", where};
  if (room < kLittleRoom) return {folder.name, Outlook::kHurts, facts + ": little room", df};
  if (speed.write_mb_s < kSlowWrite || speed.read_mb_s < kSlowRead)
    return {folder.name, Outlook::kHurts, facts + ": slow for volumes and checkpoints",
            concat("dd if=/dev/zero of=", (there / "trial").string(), " bs=1M count=256 conv=fsync")};
  return {folder.name, Outlook::kFine, facts, df};
}

// Copies of volumes: what they take. Those that nobody uses go after data.cache_days.
Finding examine_copies(const fs::path& folder) {
  int64_t bytes = 0;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) {
    if (entry.path().extension() != ".chunks") continue;
    const auto size = entry.file_size(ignored);
    if (!ignored) bytes += static_cast<int64_t>(size);
  }
  const std::string path = folder.string();
  return {"cached copies", Outlook::kFine, concat(path, " holds ", human_bytes(bytes), " of copies of volumes"),
          "du -sh '" + path + "'"};
}

}  // namespace

fs::path existing_parent(const fs::path& folder) {
  std::error_code ignored;
  fs::path there = fs::absolute(folder).lexically_normal();
  while (!fs::exists(there, ignored) && there.has_relative_path()) there = there.parent_path();
  return there;
}

DiskSpeed measure_disk(const fs::path& folder, int64_t bytes) {
  DiskSpeed speed;
  std::vector<std::byte> block = incompressible(bytes);
  const TrialFile file(folder);
  const auto failed = [&] {
    speed.problem = std::strerror(errno);
    return speed;
  };
  if (file.descriptor() < 0) return failed();
  Clock::time_point start = Clock::now();
  if (pwrite(file.descriptor(), block.data(), block.size(), 0) != static_cast<ssize_t>(block.size())) return failed();
  if (fsync(file.descriptor()) != 0) return failed();
  speed.write_mb_s = static_cast<double>(bytes) / 1e6 / seconds_since(start);
  posix_fadvise(file.descriptor(), 0, 0, POSIX_FADV_DONTNEED);  // else memory would be read
  start = Clock::now();
  if (pread(file.descriptor(), block.data(), block.size(), 0) != static_cast<ssize_t>(block.size())) return failed();
  speed.read_mb_s = static_cast<double>(bytes) / 1e6 / seconds_since(start);
  return speed;
}

int64_t free_bytes(const fs::path& folder) {
  std::error_code problem;
  const fs::space_info space = fs::space(existing_parent(folder), problem);
  return problem ? 0 : static_cast<int64_t>(space.available);
}

std::vector<Finding> examine_folders(const MachineView& machine) {
  std::vector<Finding> found;
  for (const NamedFolder& folder : machine.folders) {
    found.push_back(examine_folder(machine, folder));
    if (folder.name == "cache folder" && fs::is_directory(folder.path)) found.push_back(examine_copies(folder.path));
  }
  return found;
}

}  // namespace vox
