#include "measure/doctor_gpu.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/text.h"
#include "measure/doctor.h"
#include "measure/doctor_files.h"

namespace vox {
namespace {

constexpr int kDriverSuccess = 0, kGpuSensorOfDriver = 0;
constexpr int kHotGpu = 85;  // degrees; data-centre cards begin to lower their clocks a little above

template <class Function>
void find_symbol(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
}

GpuState read_gpu(const GpuDriverApi& api, void* gpu, int64_t own_pid) {
  GpuState state;
  std::array<char, 96> name{};
  if (api.name && api.name(gpu, name.data(), name.size()) == kDriverSuccess) state.name = name.data();
  if (api.uuid && api.uuid(gpu, name.data(), name.size()) == kDriverSuccess) state.uuid = name.data();
  GpuDriverApi::Memory memory;
  if (api.memory && api.memory(gpu, &memory) == kDriverSuccess) {
    state.total_bytes = static_cast<int64_t>(memory.total);
    state.free_bytes = static_cast<int64_t>(memory.free);
  }
  int major = 0, minor = 0;
  if (api.capability && api.capability(gpu, &major, &minor) == kDriverSuccess) state.capability = 10 * major + minor;
  unsigned degrees = 0;
  if (api.temperature && api.temperature(gpu, kGpuSensorOfDriver, &degrees) == kDriverSuccess)
    state.temperature_c = static_cast<int>(degrees);
  unsigned long long reasons = 0;
  if (api.throttle && api.throttle(gpu, &reasons) == kDriverSuccess) state.throttle = reasons;
  std::array<GpuDriverApi::Process, 64> processes{};
  unsigned count = processes.size();
  if (api.processes && api.processes(gpu, &count, processes.data()) == kDriverSuccess) {
    for (size_t i = 0; i < std::min<size_t>(count, processes.size()); ++i)
      if (processes[i].pid != own_pid)
        state.others.push_back({processes[i].pid, static_cast<int64_t>(processes[i].bytes)});
  }
  return state;
}

std::string cuda_text(int version) {  // 13000 is 13.0
  return concat(version / 1000, ".", version % 1000 / 10);
}

bool nvidia_card_on_bus(const MachineView& machine) {
  std::error_code ignored;
  for (const auto& device : fs::directory_iterator(machine.root / "sys/bus/pci/devices", ignored)) {
    const std::string folder = "/sys/bus/pci/devices/" + device.path().filename().string();
    const std::string kind = trim(read_text(machine, folder + "/class").value_or(""));
    const bool display = kind.starts_with("0x0300") || kind.starts_with("0x0302");
    if (display && trim(read_text(machine, folder + "/vendor").value_or("")) == "0x10de") return true;
  }
  return false;
}

std::string why_no_gpu(const MachineView& machine) {
  const bool driver = machine.gpus.library || exists(machine, "/proc/driver/nvidia/version");
  const bool card = nvidia_card_on_bus(machine) || !machine.gpus.gpus.empty();
  if (!machine.torch.cuda_build) {
    if (!card && !driver) return "there is none in this machine";
    return concat("there is an NVIDIA GPU, but this program was built for torch ", machine.torch.built_for,
                  ", which has no CUDA; build it for a CUDA torch with TORCH_DIR=<its folder> make build");
  }
  const std::string visible = trim(machine.visible.value_or("0"));
  if (visible.empty() || visible == "-1" || visible == "NoDevFiles")
    return concat("CUDA_VISIBLE_DEVICES is \"", visible, "\", which hides every GPU; unset it");
  if (!driver)
    return card ? "there is an NVIDIA card, but its driver is not loaded; install it, or load the module nvidia"
                : "there is no NVIDIA driver and no card on the bus";
  if (!exists(machine, "/dev/nvidiactl") && !exists(machine, "/dev/nvidia0"))
    return "the driver is loaded, but there is no /dev/nvidia0 here; start the container with its GPUs (--gpus all)";
  if (machine.gpus.cuda > 0 && machine.gpus.cuda / 1000 < machine.torch.cuda / 1000)
    return concat("driver ", machine.gpus.driver, " runs CUDA ", cuda_text(machine.gpus.cuda),
                  " at most, and torch was built for CUDA ", cuda_text(machine.torch.cuda), "; install a newer driver");
  if (machine.gpus.library && machine.gpus.gpus.empty()) return "the driver is loaded but finds no GPU";
  return "torch sees none though the driver is loaded; nvidia-smi may say more";
}

Finding driver_against_runtime(const MachineView& machine) {
  const int driver = machine.gpus.cuda, runtime = machine.torch.cuda;
  const std::string both = concat("driver ", machine.gpus.driver, " runs CUDA up to ", cuda_text(driver),
                                  "; torch was built for ", cuda_text(runtime));
  if (driver / 1000 < runtime / 1000)
    return {"driver", Outlook::kFails, both + ": install a newer driver, or a torch for the older CUDA", "nvidia-smi"};
  if (driver < runtime) return {"driver", Outlook::kFine, both + "; the same major version works", "nvidia-smi"};
  return {"driver", Outlook::kFine, both, "nvidia-smi"};
}

// NVML's bits of clocks that are held back.
std::string throttle_text(uint64_t bits) {
  constexpr uint64_t kPowerCap = 0x4, kHardware = 0x8, kThermal = 0x20, kHardwareThermal = 0x40, kPowerBrake = 0x80;
  std::vector<std::string> reasons;
  if (bits & (kThermal | kHardwareThermal)) reasons.push_back("heat");
  if (bits & kPowerCap) reasons.push_back("its power cap");
  if (bits & kPowerBrake) reasons.push_back("an external power brake");
  if (bits & kHardware && reasons.empty()) reasons.push_back("its hardware's protection");
  return join(reasons, " and ");
}

Finding state_of_gpu(const GpuState& gpu, size_t index) {
  const std::string name = concat("gpu ", index);
  std::vector<std::string> pains;
  if (const std::string reasons = throttle_text(gpu.throttle); !reasons.empty())
    pains.push_back("its clock is lowered by " + reasons);
  if (gpu.temperature_c.value_or(0) >= kHotGpu) pains.push_back(concat("it is ", *gpu.temperature_c, " C hot"));
  if (!gpu.others.empty()) {
    int64_t bytes = 0;
    for (const GpuProcess& process : gpu.others) bytes += process.bytes;
    pains.push_back(concat(gpu.others.size(), " other process", gpu.others.size() == 1 ? " uses" : "es use", " it (",
                           human_bytes(bytes), ", the first is pid ", gpu.others.front().pid, ")"));
  }
  const std::string memory = concat(human_bytes(gpu.free_bytes), " of ", human_bytes(gpu.total_bytes), " free");
  const std::string heat = gpu.temperature_c ? concat(", ", *gpu.temperature_c, " C") : "";
  const std::string proof = concat("nvidia-smi -i ", index, " -q -d PERFORMANCE,TEMPERATURE,PIDS,MEMORY");
  if (pains.empty()) return {name, Outlook::kFine, concat(gpu.name, ", ", memory, heat, ", nobody else on it"), proof};
  return {name, Outlook::kHurts, concat(gpu.name, ", ", memory, ": ", join(pains, "; ")), proof};
}

}  // namespace

GpuDriverApi load_gpu_driver() {
  GpuDriverApi api;
  void* const library = dlopen("libnvidia-ml.so.1", RTLD_NOW);  // stays: the run's monitor may be inside
  if (!library) return api;
  find_symbol(library, "nvmlInit_v2", api.init);
  find_symbol(library, "nvmlSystemGetDriverVersion", api.driver_version);
  find_symbol(library, "nvmlSystemGetCudaDriverVersion_v2", api.cuda_version);
  find_symbol(library, "nvmlDeviceGetCount_v2", api.count);
  find_symbol(library, "nvmlDeviceGetHandleByIndex_v2", api.handle);
  find_symbol(library, "nvmlDeviceGetName", api.name);
  find_symbol(library, "nvmlDeviceGetUUID", api.uuid);
  find_symbol(library, "nvmlDeviceGetMemoryInfo", api.memory);
  find_symbol(library, "nvmlDeviceGetCudaComputeCapability", api.capability);
  find_symbol(library, "nvmlDeviceGetTemperature", api.temperature);
  find_symbol(library, "nvmlDeviceGetCurrentClocksThrottleReasons", api.throttle);
  find_symbol(library, "nvmlDeviceGetComputeRunningProcesses_v3", api.processes);
  return api;
}

GpuFacts read_gpus(const GpuDriverApi& api, int64_t own_pid) {
  GpuFacts facts;
  if (!api.init || !api.count || !api.handle || api.init() != kDriverSuccess) return facts;
  facts.library = true;
  std::array<char, 96> version{};
  if (api.driver_version && api.driver_version(version.data(), version.size()) == kDriverSuccess)
    facts.driver = version.data();
  if (api.cuda_version && api.cuda_version(&facts.cuda) != kDriverSuccess) facts.cuda = 0;
  unsigned count = 0;
  if (api.count(&count) != kDriverSuccess) count = 0;
  for (unsigned i = 0; i < count; ++i) {
    void* gpu = nullptr;
    if (api.handle(i, &gpu) == kDriverSuccess) facts.gpus.push_back(read_gpu(api, gpu, own_pid));
  }
  return facts;
}

std::vector<size_t> visible_gpus(const std::vector<GpuState>& gpus, const std::optional<std::string>& visible) {
  std::vector<size_t> places;
  if (!visible) {
    for (size_t i = 0; i < gpus.size(); ++i) places.push_back(i);
    return places;
  }
  for (const std::string& entry : split(*visible, ',')) {
    const std::string name = trim(entry);
    const bool number = !name.empty() && name.find_first_not_of("0123456789") == std::string::npos;
    const auto found = std::find_if(gpus.begin(), gpus.end(), [&](const GpuState& gpu) {
      return number ? name == std::to_string(&gpu - gpus.data()) : !name.empty() && gpu.uuid.starts_with(name);
    });
    if (found == gpus.end()) break;
    places.push_back(static_cast<size_t>(found - gpus.begin()));
  }
  return places;
}

std::vector<Finding> examine_gpu(const MachineView& machine) {
  std::vector<Finding> found;
  if (machine.torch.gpus > 0 && !machine.torch.kernels) {
    found.push_back({"gpu", Outlook::kHurts,
                     "torch sees a GPU, but this program was built without its CUDA kernels and trains on the CPU; "
                     "build it with cmake --preset gpu",
                     "nvidia-smi"});
  } else if (machine.torch.gpus > 0) {
    const std::vector<size_t> visible = visible_gpus(machine.gpus.gpus, machine.visible);
    const std::string first = visible.empty() ? "" : concat(", the first an ", machine.gpus.gpus[visible.front()].name);
    found.push_back({"gpu", Outlook::kFine,
                     concat("torch can use ", machine.torch.gpus, " GPU", machine.torch.gpus == 1 ? "" : "s", first),
                     "nvidia-smi"});
  } else {
    found.push_back(
        {"gpu", Outlook::kHurts, concat("no GPU to train on, so the CPU does: ", why_no_gpu(machine)), "nvidia-smi"});
  }
  if (machine.gpus.library && machine.gpus.cuda > 0 && machine.torch.cuda > 0)
    found.push_back(driver_against_runtime(machine));
  return found;
}

std::vector<Finding> examine_gpu_state(const MachineView& machine) {
  std::vector<Finding> found;
  for (const size_t i : visible_gpus(machine.gpus.gpus, machine.visible))
    found.push_back(state_of_gpu(machine.gpus.gpus[i], i));
  return found;
}

}  // namespace vox
