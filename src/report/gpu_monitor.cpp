#include "report/gpu_monitor.h"

#include <dlfcn.h>

#include <cstdlib>

#include "base/start_thread.h"
#include "base/text.h"

namespace vox {
namespace {

constexpr int kSuccess = 0, kGpuSensor = 0;

template <class Function>
bool load(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

}  // namespace

std::optional<NvmlApi> load_nvml() {
  void* const library = dlopen("libnvidia-ml.so.1", RTLD_NOW);  // stays: other threads may be inside
  if (!library) return std::nullopt;
  NvmlApi api;
  const bool complete =
      load(library, "nvmlInit_v2", api.init) && load(library, "nvmlDeviceGetHandleByIndex_v2", api.handle_by_index) &&
      load(library, "nvmlDeviceGetHandleByUUID", api.handle_by_uuid) &&
      load(library, "nvmlDeviceGetUtilizationRates", api.use) &&
      load(library, "nvmlDeviceGetTemperature", api.temperature) && load(library, "nvmlDeviceGetPowerUsage", api.power);
  if (!complete) return std::nullopt;
  return api;
}

GpuMonitor::GpuMonitor(const std::optional<NvmlApi>& api, int device, const std::string& visible) {
  if (!api || device < 0 || api->init() != kSuccess) return;
  api_ = *api;
  std::string name = std::to_string(device);
  if (!visible.empty()) {
    const std::vector<std::string> entries = split(visible, ',');
    if (static_cast<size_t>(device) >= entries.size()) return;
    name = trim(entries[static_cast<size_t>(device)]);
  }
  void* handle = nullptr;
  const bool number = !name.empty() && name.find_first_not_of("0123456789") == std::string::npos;
  const int status = number ? api_.handle_by_index(static_cast<unsigned>(std::atoi(name.c_str())), &handle)
                            : api_.handle_by_uuid(name.c_str(), &handle);
  if (status == kSuccess) handle_ = handle;
}

GpuReading GpuMonitor::read() const {
  GpuReading reading;
  if (!handle_) return reading;
  NvmlApi::Use use;
  unsigned degrees = 0, milliwatts = 0;
  if (api_.use(handle_, &use) == kSuccess) reading.use = use.gpu / 100.0;
  if (api_.temperature(handle_, kGpuSensor, &degrees) == kSuccess) reading.temperature_c = degrees;
  if (api_.power(handle_, &milliwatts) == kSuccess) reading.power_w = milliwatts / 1000.0;
  return reading;
}

GpuMonitor monitor_of(int device) {
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  return GpuMonitor(load_nvml(), device, visible ? visible : "");
}

GpuWatch::GpuWatch(const GpuMonitor& monitor, std::chrono::milliseconds every)
    : monitor_(monitor),
      last_(monitor.read()),
      thread_(start_thread<std::jthread>([this, every](std::stop_token stop) { watch(stop, every); })) {}

GpuReading GpuWatch::last() const {
  const std::lock_guard lock(mutex_);
  return last_;
}

void GpuWatch::watch(std::stop_token stop, std::chrono::milliseconds every) {
  std::unique_lock lock(mutex_);
  while (!stop.stop_requested()) {
    wake_.wait_for(lock, stop, every, [] { return false; });
    lock.unlock();
    const GpuReading now = monitor_.read();
    lock.lock();
    last_ = now;
  }
}

}  // namespace vox
