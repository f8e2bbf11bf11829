// Machines that are not there: a fake root with files of /proc and /sys, a driver and a torch of the test's own.
#include "measure/doctor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "measure/doctor_child.h"
#include "measure/doctor_disk.h"
#include "measure/doctor_files.h"
#include "report/test_folder.h"

namespace vox {
namespace {

using testing::HasSubstr;

class FakeMachine {
 public:
  FakeMachine() {
    view.root = folder_.path();
    view.torch.built_for = view.torch.loaded = "2.13.0+cpu";
    std::string cpuinfo;
    for (int i = 0; i < 8; ++i) cpuinfo += "processor\t: " + std::to_string(i) + "\nflags\t\t: fpu avx2 fma\n\n";
    put("/proc/cpuinfo", cpuinfo);
    put("/proc/self/status", "Name:\tx\nCpus_allowed_list:\t0-7\n");
    put("/proc/self/cgroup", "0::/jobs/job7\n");
    put("/proc/meminfo", "MemTotal:       67108864 kB\nMemFree: 1 kB\nMemAvailable:   33554432 kB\n");
    put("/proc/loadavg", "0.50 0.40 0.30 1/200 77\n");
    put("/proc/self/limits",
        "Limit                     Soft Limit           Hard Limit           Units\n"
        "Max processes             30000                30000                processes\n"
        "Max open files            1024                 1048576              files\n"
        "Max address space         unlimited            unlimited            bytes\n");
    put("/proc/self/mountinfo",
        "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
        "23 22 0:21 / /dev/shm rw,nosuid - tmpfs shm rw,size=65536k\n");
  }
  void put(const std::string& path, const std::string& text) {
    const fs::path file = folder_.path() / path.substr(1);
    fs::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  const fs::path& folder() const { return folder_.path(); }
  MachineView view;

 private:
  TestFolder folder_;
};

Finding only(const std::vector<Finding>& findings) {
  EXPECT_EQ(findings.size(), 1u);
  return findings.empty() ? Finding{} : findings.front();
}
std::optional<Finding> named(const std::vector<Finding>& findings, const std::string& name) {
  for (const Finding& finding : findings)
    if (finding.name == name) return finding;
  return std::nullopt;
}

TEST(Doctor, EveryCheckOfAHealthyMachineIsFineAndNamesItsProof) {
  FakeMachine machine;
  machine.view.torch.gpus = 1;
  machine.view.torch.cuda_build = true;
  machine.view.gpus.gpus = {{.name = "H200",
                             .total_bytes = 1 << 30,
                             .free_bytes = 1 << 30,
                             .capability = 90,
                             .temperature_c = 40,
                             .throttle = 0,
                             .others = {}}};
  for (const MachineCheck& check : machine_checks())
    for (const Finding& finding : check.look(machine.view)) {
      if (check.name == "libraries") continue;  // as this build is
      EXPECT_EQ(finding.verdict, Outlook::kFine) << finding.name << ": " << finding.sentence;
      EXPECT_FALSE(finding.proof.empty()) << finding.name;
    }
}

TEST(Doctor, CpusByAffinityAndQuota) {
  FakeMachine machine;
  EXPECT_THAT(examine_cpus(machine.view)[0].sentence, HasSubstr("8 of 8 CPUs"));
  machine.put("/proc/self/status", "Cpus_allowed_list:\t0-2,5\n");
  EXPECT_EQ(count_cpus(machine.view).allowed, 4);
  EXPECT_EQ(examine_cpus(machine.view)[0].verdict, Outlook::kHurts);
  machine.put("/proc/self/status", "Cpus_allowed_list:\t0-7\n");
  machine.put("/sys/fs/cgroup/jobs/job7/cpu.max", "max 100000\n");
  EXPECT_EQ(count_cpus(machine.view).usable(), 8);
  machine.put("/sys/fs/cgroup/jobs/cpu.max", "250000 100000\n");  // a group above is tighter
  EXPECT_EQ(count_cpus(machine.view).usable(), 3);
  const Finding finding = examine_cpus(machine.view)[0];
  EXPECT_EQ(finding.verdict, Outlook::kHurts);
  EXPECT_THAT(finding.sentence, HasSubstr("2.50"));
  EXPECT_EQ(finding.proof, "cat /sys/fs/cgroup/jobs/cpu.max");
  FakeMachine old;  // cgroup v1
  old.put("/proc/self/cgroup", "4:cpu,cpuacct:/docker/a\n5:memory:/docker/a\n");
  old.put("/sys/fs/cgroup/cpu/docker/a/cpu.cfs_quota_us", "100000\n");
  old.put("/sys/fs/cgroup/cpu/docker/a/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(count_cpus(old.view).usable(), 1);
}

TEST(Doctor, SpareMemoryIsWhatTheContainerLeaves) {
  FakeMachine machine;
  const int64_t gib = int64_t{1} << 30;
  EXPECT_EQ(spare_memory(machine.view), 32 * gib);
  machine.put("/proc/self/status", "Cpus_allowed_list:\t0-7\nVmRSS:\t 2097152 kB\n");
  EXPECT_EQ(spare_memory(machine.view), 32 * gib) << "what is available is beside it";
  machine.put("/sys/fs/cgroup/jobs/memory.max", std::to_string(8 * gib) + "\n");
  EXPECT_EQ(spare_memory(machine.view), 6 * gib);
  machine.put("/sys/fs/cgroup/jobs/memory.max", std::to_string(48 * gib) + "\n");
  EXPECT_EQ(spare_memory(machine.view), 32 * gib);
  machine.put("/sys/fs/cgroup/jobs/memory.max", std::to_string(gib) + "\n");
  EXPECT_EQ(spare_memory(machine.view), 0);
}

TEST(Doctor, ThrottledAndLoadedCpusHurt) {
  FakeMachine machine;
  machine.put("/sys/fs/cgroup/jobs/job7/cpu.stat", "usage_usec 1\nnr_periods 1000\nnr_throttled 400\n");
  ASSERT_TRUE(named(examine_cpus(machine.view), "cpu quota"));
  EXPECT_THAT(named(examine_cpus(machine.view), "cpu quota")->sentence, HasSubstr("40 %"));
  machine.put("/proc/loadavg", "17.2 9 9 1/200 77\n");
  EXPECT_TRUE(named(examine_cpus(machine.view), "load"));
}

TEST(Doctor, ClockAndHeat) {
  FakeMachine machine;
  const std::string folder = "/sys/devices/system/cpu/cpu0/cpufreq/";
  machine.put(folder + "scaling_max_freq", "1200000\n");
  machine.put(folder + "cpuinfo_max_freq", "3600000\n");
  EXPECT_THAT(only(examine_clock(machine.view)).sentence, HasSubstr("1.20 of 3.60 GHz"));
  machine.put(folder + "scaling_max_freq", "3600000\n");
  EXPECT_EQ(only(examine_clock(machine.view)).verdict, Outlook::kFine);
  machine.put("/sys/class/thermal/thermal_zone3/temp", "99000\n");
  machine.put("/sys/class/thermal/thermal_zone3/type", "x86_pkg_temp\n");
  EXPECT_THAT(only(examine_clock(machine.view)).sentence, HasSubstr("x86_pkg_temp 99 C"));
}

TEST(Doctor, MemoryLimitsOfContainers) {
  FakeMachine machine;
  EXPECT_EQ(count_memory(machine.view).usable(), int64_t{64} << 30);
  machine.put("/sys/fs/cgroup/jobs/job7/memory.max", "max\n");
  machine.put("/sys/fs/cgroup/jobs/memory.max", "2147483648\n");
  const Finding finding = examine_memory(machine.view)[0];
  EXPECT_EQ(finding.verdict, Outlook::kHurts);
  EXPECT_THAT(finding.sentence, HasSubstr("2.0 GiB of memory by the container's limit, of 64.0 GiB"));
  machine.put("/sys/fs/cgroup/jobs/job7/memory.events", "low 0\noom 3\noom_kill 2\n");
  EXPECT_TRUE(named(examine_memory(machine.view), "memory kills"));
  FakeMachine old;
  old.put("/proc/self/cgroup", "5:memory:/docker/a\n");
  old.put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");  // none
  EXPECT_FALSE(cgroup_memory(old.view));
  old.put("/sys/fs/cgroup/memory/docker/a/memory.limit_in_bytes", "8589934592\n");
  EXPECT_EQ(count_memory(old.view).usable(), int64_t{8} << 30);
}

TEST(Doctor, ResourceLimits) {
  FakeMachine machine;
  const auto limit = [&](const std::string& files, const std::string& space, const std::string& processes) {
    machine.put("/proc/self/limits", "Max processes             " + processes + " " + processes +
                                         " processes\nMax open files            64 " + files +
                                         " files\nMax address space         " + space + " unlimited bytes\n");
    return examine_limits(machine.view);
  };
  EXPECT_EQ(worst(limit("4096", "unlimited", "4000")), Outlook::kFine);
  EXPECT_EQ(named(limit("1024", "unlimited", "4000"), "open files")->verdict, Outlook::kHurts);
  EXPECT_EQ(named(limit("64", "unlimited", "4000"), "open files")->verdict, Outlook::kFails);
  EXPECT_EQ(named(limit("4096", "8589934592", "4000"), "address space")->verdict, Outlook::kHurts);
  EXPECT_EQ(named(limit("4096", "unlimited", "100"), "threads")->verdict, Outlook::kHurts);
  machine.view.torch.gpus = 1;
  EXPECT_EQ(named(limit("4096", "8589934592", "4000"), "address space")->verdict, Outlook::kFails);
}

TEST(Doctor, SharedMemoryIsNotNeeded) {
  FakeMachine machine;
  EXPECT_THAT(only(examine_shared_memory(machine.view)).sentence, HasSubstr("64.0 MiB"));
  machine.put("/proc/self/mountinfo", "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n");
  EXPECT_THAT(only(examine_shared_memory(machine.view)).sentence, HasSubstr("no /dev/shm"));
}

TEST(Doctor, FoldersByMountRoomAndPermission) {
  FakeMachine machine;
  const fs::path data = machine.folder() / "my data/runs";
  machine.view.folders = {{"run folder", data}};
  const auto mounted = [&](const std::string& type) {
    std::string point = machine.folder().string() + "/my\\040data";
    fs::create_directories(machine.folder() / "my data");
    machine.put("/proc/self/mountinfo", "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n30 22 0:50 / " + point +
                                            " rw shared:9 - " + type + " server:/export rw\n");
    return only(examine_folders(machine.view));
  };
  EXPECT_EQ(mount_of(machine.view, data).type, "ext4");
  for (const char* type : {"nfs4", "cifs", "lustre", "fuse.sshfs"}) {
    const Finding finding = mounted(type);
    EXPECT_EQ(finding.verdict, Outlook::kHurts) << type;
    EXPECT_THAT(finding.sentence, HasSubstr("server:/export"));
  }
  EXPECT_THAT(mounted("tmpfs").sentence, HasSubstr("lies in memory"));
  EXPECT_THAT(mounted("xfs").sentence, HasSubstr("MB/s"));
  EXPECT_TRUE(fs::is_empty(machine.folder() / "my data"));  // nothing is left behind
  machine.put("/a file", "");
  machine.view.folders = {{"run folder", machine.folder() / "a file"}};
  EXPECT_EQ(only(examine_folders(machine.view)).verdict, Outlook::kFails);
}

TEST(Doctor, TellsWhatCopiesOfVolumesTake) {
  FakeMachine machine;
  for (const char* name : {"a.chunks", "b.chunks", "kernels.json"})
    machine.put(std::string("/my cache/") + name, std::string(3 << 20, 'x'));
  machine.view.folders = {{"cache folder", machine.folder() / "my cache"}};
  const Finding found = named(examine_folders(machine.view), "cached copies").value_or(Finding{});
  EXPECT_THAT(found.sentence, HasSubstr("holds 6.0 MiB of copies of volumes"));
}

TEST(Doctor, SaysThatAProgramWithoutKernelsLeavesAGpuAlone) {
  FakeMachine machine;
  machine.view.torch.gpus = 1;
  EXPECT_EQ(examine_gpu(machine.view)[0].verdict, Outlook::kFine);
  machine.view.torch.kernels = false;
  const Finding found = examine_gpu(machine.view)[0];
  EXPECT_EQ(found.verdict, Outlook::kHurts);
  EXPECT_THAT(found.sentence, HasSubstr("built without its CUDA kernels"));
}

TEST(Doctor, SaysWhyThereIsNoGpu) {
  FakeMachine machine;
  const auto why = [&] { return examine_gpu(machine.view)[0].sentence; };
  EXPECT_THAT(why(), HasSubstr("there is none in this machine"));
  machine.put("/sys/bus/pci/devices/0000:01:00.0/vendor", "0x10de\n");
  machine.put("/sys/bus/pci/devices/0000:01:00.0/class", "0x030200\n");
  EXPECT_THAT(why(), HasSubstr("which has no CUDA"));
  machine.view.torch.cuda_build = true;
  machine.view.torch.cuda = 13000;
  EXPECT_THAT(why(), HasSubstr("driver is not loaded"));
  machine.put("/proc/driver/nvidia/version", "NVRM version: x\n");
  EXPECT_THAT(why(), HasSubstr("--gpus all"));
  machine.put("/dev/nvidia0", "");
  EXPECT_THAT(why(), HasSubstr("torch sees none"));
  machine.view.gpus = {.library = true, .driver = "550.1", .cuda = 12040, .gpus = {}};
  EXPECT_THAT(why(), HasSubstr("driver 550.1 runs CUDA 12.4 at most, and torch was built for CUDA 13.0"));
  EXPECT_EQ(named(examine_gpu(machine.view), "driver")->verdict, Outlook::kFails);
  machine.view.gpus.cuda = 13010;
  EXPECT_EQ(named(examine_gpu(machine.view), "driver")->verdict, Outlook::kFine);
  EXPECT_THAT(why(), HasSubstr("finds no GPU"));
  for (const char* hidden : {"", "-1"}) {
    machine.view.visible = hidden;
    EXPECT_THAT(why(), HasSubstr("CUDA_VISIBLE_DEVICES"));
  }
  machine.view.torch.gpus = 2;
  EXPECT_THAT(why(), HasSubstr("2 GPUs"));
}

int card = 0;
GpuDriverApi fake_gpu_driver() {
  GpuDriverApi api;
  api.init = [] { return 0; };
  api.driver_version = [](char* text, unsigned size) {
    std::strncpy(text, "580.65", size);
    return 0;
  };
  api.cuda_version = [](int* version) {
    *version = 13000;
    return 0;
  };
  api.count = [](unsigned* count) {
    *count = 1;
    return 0;
  };
  api.handle = [](unsigned, void** handle) {
    *handle = &card;
    return 0;
  };
  api.name = [](void*, char* text, unsigned size) {
    std::strncpy(text, "H200", size);
    return 0;
  };
  api.memory = [](void*, GpuDriverApi::Memory* memory) {
    *memory = {1000, 400, 600};
    return 0;
  };
  api.capability = [](void*, int* major, int* minor) {
    *major = 9, *minor = 0;
    return 0;
  };
  api.temperature = [](void*, int, unsigned* degrees) {
    *degrees = 91;
    return 0;
  };
  api.throttle = [](void*, unsigned long long* bits) {
    *bits = 0x40;
    return 0;
  };
  api.processes = [](void*, unsigned* count, GpuDriverApi::Process* processes) {
    processes[0].pid = 41, processes[0].bytes = 1 << 20;
    processes[1].pid = 42, processes[1].bytes = 1 << 20;
    *count = 2;
    return 0;
  };
  return api;
}

TEST(Doctor, HeatThrottlingAndOthersOnTheGpu) {
  FakeMachine machine;
  machine.view.gpus = read_gpus(fake_gpu_driver(), /*own_pid=*/42);
  ASSERT_EQ(machine.view.gpus.gpus.size(), 1u);
  EXPECT_EQ(machine.view.gpus.gpus[0].capability, 90);
  const Finding finding = only(examine_gpu_state(machine.view));
  EXPECT_EQ(finding.verdict, Outlook::kHurts);
  for (const char* part : {"heat", "91 C hot", "1 other process uses it", "pid 41"})
    EXPECT_THAT(finding.sentence, HasSubstr(part));
  EXPECT_FALSE(read_gpus(GpuDriverApi{}, 0).library);
}

TEST(Doctor, TorchAndCudnnAgainstKnownTrouble) {
  FakeMachine machine;
  TorchFacts& torch = machine.view.torch;
  EXPECT_EQ(only(examine_torch(machine.view)).verdict, Outlook::kFine);
  torch.loaded = "2.12.0";
  EXPECT_EQ(only(examine_torch(machine.view)).verdict, Outlook::kFails);
  torch = {.built_for = "2.11.0+cu130", .loaded = "2.11.0+cu130", .cuda_build = true, .cuda = 13000, .cudnn = 91000};
  EXPECT_THAT(only(examine_torch(machine.view)).sentence, HasSubstr("163539"));
  torch.cudnn = 91500;
  EXPECT_EQ(only(examine_torch(machine.view)).verdict, Outlook::kFine);
  torch.built_for = torch.loaded = "2.9.0+cu128";
  EXPECT_THAT(only(examine_torch(machine.view)).sentence, HasSubstr("166122"));
  torch.built_for = torch.loaded = "2.9.1+cu128";
  EXPECT_EQ(only(examine_torch(machine.view)).verdict, Outlook::kFine);
  torch.cudnn = 91400;
  EXPECT_THAT(only(examine_torch(machine.view)).sentence, HasSubstr("166643"));
}

TEST(Doctor, OperationsOfThisMachineAreRight) {
  FakeMachine machine;
  TorchFacts& torch = machine.view.torch;
  torch.trials = try_convolutions({});
  ASSERT_EQ(torch.trials.size(), 1u);
  EXPECT_LT(torch.trials[0].error, 1e-5);
  EXPECT_GT(torch.trials[0].error, 0);  // it was compared with something else than itself
  EXPECT_EQ(only(examine_operations(machine.view)).verdict, Outlook::kFine);
  torch.trials[0].error = 0.3;
  EXPECT_EQ(only(examine_operations(machine.view)).verdict, Outlook::kFails);
  torch.trials = {{"large float32 on the GPU", 5, 0, 1, ""}, {"large bfloat16 on the GPU", 20, 0, 1, ""}};
  EXPECT_EQ(worst(examine_operations(machine.view)), Outlook::kHurts);
  torch.trials[1] = {"large bfloat16 on the GPU", 0, 0, 1, "no engine found"};
  EXPECT_THAT(examine_operations(machine.view)[0].sentence, HasSubstr("no engine found"));
}

TEST(Doctor, InstructionsThatAreAdvertisedAndKill) {
  FakeMachine machine;
  int tries = 0;
  machine.view.try_bfloat16 = [&] {
    ++tries;
    return ChildOutcome{.signal = 4, .status = 0};
  };
  EXPECT_EQ(only(examine_instructions(machine.view)).verdict, Outlook::kFine);
  EXPECT_EQ(tries, 0);  // nothing is advertised
  machine.put("/proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu avx512_bf16 amx_bf16\n");
  const Finding finding = only(examine_instructions(machine.view));
  EXPECT_EQ(finding.verdict, Outlook::kHurts);
  for (const char* part : {"avx512_bf16, amx_bf16", "signal 4", "in float32 on a CPU"})
    EXPECT_THAT(finding.sentence, HasSubstr(part));
  machine.view.try_bfloat16 = [] { return ChildOutcome{}; };
  EXPECT_EQ(only(examine_instructions(machine.view)).verdict, Outlook::kFine);
}

constexpr const char* kChildDoes = "VOX_TEST_CHILD_DOES";

ChildOutcome child_that(const char* does, double seconds) {  // this test program again, with the test below alone
  setenv(kChildDoes, does, 1);
  const ChildOutcome outcome = run_this_program({"--gtest_filter=DoctorChild.DoesAsItIsTold"}, seconds);
  unsetenv(kChildDoes);
  return outcome;
}
TEST(DoctorChild, DoesAsItIsTold) {
  const char* does = std::getenv(kChildDoes);
  const std::string told = does ? does : "nothing";
  if (told == "sleep") sleep(20);
  if (told == "die") raise(SIGILL);
  EXPECT_NE(told, "fail");
}
TEST(DoctorChild, ItsEndIsSeenAndAHangEnds) {
  EXPECT_EQ(child_that("nothing", 60).status, 0);
  EXPECT_EQ(child_that("fail", 60).status, 1);
  EXPECT_EQ(child_that("die", 60).signal, SIGILL);
  EXPECT_EQ(child_that("sleep", 0.3).signal, SIGKILL);
}

}  // namespace
}  // namespace vox
