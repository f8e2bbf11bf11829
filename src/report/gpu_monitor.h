// Use, temperature and power of one GPU, asked of the driver's own library (NVML), which is loaded at run time: nothing
// here needs CUDA, and where there is no driver there are simply no figures.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>

namespace vox {

struct GpuReading {
  std::optional<double> use;  // 0..1, over the driver's last sampling period
  std::optional<double> temperature_c, power_w;
};

struct NvmlApi {  // the functions of libnvidia-ml that are used; a test gives its own
  struct Use {
    unsigned gpu = 0, memory = 0;  // percent
  };
  int (*init)() = nullptr;
  int (*handle_by_index)(unsigned, void**) = nullptr;
  int (*handle_by_uuid)(const char*, void**) = nullptr;
  int (*use)(void*, Use*) = nullptr;
  int (*temperature)(void*, int sensor, unsigned*) = nullptr;
  int (*power)(void*, unsigned*) = nullptr;  // milliwatts
};
std::optional<NvmlApi> load_nvml();  // nothing where the library or one of the functions is missing

class GpuMonitor {
 public:
  GpuMonitor() = default;  // reads nothing
  // `device` counts as CUDA counts: among the GPUs that `visible` (CUDA_VISIBLE_DEVICES; empty: all) leaves.
  GpuMonitor(const std::optional<NvmlApi>& api, int device, const std::string& visible);

  GpuReading read() const;

 private:
  NvmlApi api_;
  void* handle_ = nullptr;
};

GpuMonitor monitor_of(int device);  // with the machine's own library and environment

// Reads again and again in a thread of its own: the driver may take milliseconds to answer, for which nobody waits.
class GpuWatch {
 public:
  explicit GpuWatch(const GpuMonitor& monitor, std::chrono::milliseconds every = std::chrono::milliseconds(200));
  GpuReading last() const;

 private:
  void watch(std::stop_token stop, std::chrono::milliseconds every);

  GpuMonitor monitor_;
  mutable std::mutex mutex_;  // guards last_
  std::condition_variable_any wake_;
  GpuReading last_;
  std::jthread thread_;
};

}  // namespace vox
