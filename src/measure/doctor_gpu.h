// What the NVIDIA driver's own library (NVML) says of driver and GPUs. It is loaded at run time; nothing needs CUDA.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace vox {

struct GpuProcess {
  int64_t pid = 0, bytes = 0;
};

struct GpuState {
  std::string name, uuid;
  int64_t total_bytes = 0, free_bytes = 0;
  int capability = 0;  // 90: compute capability 9.0
  std::optional<int> temperature_c;
  uint64_t throttle = 0;  // NVML's bits
  std::vector<GpuProcess> others;
};

struct GpuFacts {
  bool library = false;  // libnvidia-ml is there and starts
  std::string driver;    // "580.65.06"
  int cuda = 0;          // newest CUDA that the driver runs; 13000: 13.0
  std::vector<GpuState> gpus;
};

struct GpuDriverApi {  // a test gives its own; a function that the driver lacks is null
  struct Memory {
    unsigned long long total = 0, free = 0, used = 0;
  };
  struct Process {
    unsigned pid = 0;
    unsigned long long bytes = 0;
    unsigned gpu_instance = 0, compute_instance = 0;
  };
  int (*init)() = nullptr;
  int (*driver_version)(char*, unsigned) = nullptr;
  int (*cuda_version)(int*) = nullptr;
  int (*count)(unsigned*) = nullptr;
  int (*handle)(unsigned, void**) = nullptr;
  int (*name)(void*, char*, unsigned) = nullptr;
  int (*uuid)(void*, char*, unsigned) = nullptr;
  int (*memory)(void*, Memory*) = nullptr;
  int (*capability)(void*, int*, int*) = nullptr;
  int (*temperature)(void*, int sensor, unsigned*) = nullptr;
  int (*throttle)(void*, unsigned long long*) = nullptr;
  int (*processes)(void*, unsigned*, Process*) = nullptr;
};
GpuDriverApi load_gpu_driver();  // every function null where there is no library
GpuFacts read_gpus(const GpuDriverApi& api, int64_t own_pid);

// Places in `gpus` of those that CUDA_VISIBLE_DEVICES leaves, as torch counts them; absent: all. CUDA reads it up to
// the first that it does not know.
std::vector<size_t> visible_gpus(const std::vector<GpuState>& gpus, const std::optional<std::string>& visible);

}  // namespace vox
