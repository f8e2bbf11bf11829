#include <ATen/core/Tensor.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <thread>

#include "base/error.h"
#include "kernels/lap_cuda.h"
#include "ops/device.h"

namespace vox::ops {
namespace {

struct DestroyEvent {
  void operator()(cudaEvent_t event) const { cudaEventDestroy(event); }
};
using EventHandle = std::unique_ptr<CUevent_st, DestroyEvent>;

EventHandle make_event() {
  cudaEvent_t event = nullptr;
  C10_CUDA_CHECK(cudaEventCreate(&event));
  return EventHandle(event);
}

}  // namespace

double milliseconds_of(const at::Tensor& on, const std::function<void()>& work) {
  constexpr int kRounds = 3, kRuns = 5;
  const cudaStream_t stream = c10::cuda::getCurrentCUDAStream(on.device().index()).stream();
  const EventHandle begin = make_event(), end = make_event();
  work();
  float best = 0;
  for (int round = 0; round < kRounds; ++round) {
    C10_CUDA_CHECK(cudaEventRecord(begin.get(), stream));
    for (int run = 0; run < kRuns; ++run) work();
    C10_CUDA_CHECK(cudaEventRecord(end.get(), stream));
    C10_CUDA_CHECK(cudaEventSynchronize(end.get()));
    float elapsed = 0;
    C10_CUDA_CHECK(cudaEventElapsedTime(&elapsed, begin.get(), end.get()));
    best = round == 0 ? elapsed : std::min(best, elapsed);
  }
  return static_cast<double>(best) / kRuns;
}

double milliseconds_elsewhere(const at::Tensor& on, const std::function<void()>& work) {
  const c10::cuda::CUDAStream stream = c10::cuda::getCurrentCUDAStream(on.device().index());
  double milliseconds = 0;
  std::exception_ptr failed;
  std::thread([&] {
    try {
      const c10::cuda::CUDAStreamGuard same(stream);
      milliseconds = milliseconds_of(on, work);
    } catch (...) {
      failed = std::current_exception();
    }
  }).join();
  if (failed) std::rethrow_exception(failed);
  return milliseconds;
}

void take_lap(const at::Tensor& clock, const std::vector<size_t>& slots) {
  VOX_ASSERT(slots.size() <= size_t{cuda::kMaxLapShares});
  cuda::LapShares shares;
  for (const size_t slot : slots) shares.slot[shares.count++] = static_cast<int>(slot);
  int64_t* const nanoseconds = clock.data_ptr<int64_t>();
  cuda::take_lap(nanoseconds, nanoseconds + clock.numel() - 1, shares, current_stream(clock));
}

MemoryLimit::MemoryLimit(const at::Tensor& on, int64_t bytes) : device_(on.device().index()) {
  namespace allocator = c10::cuda::CUDACachingAllocator;
  const auto device = static_cast<c10::DeviceIndex>(device_);
  before_ = allocator::getMemoryFraction(device);
  const int64_t held = allocator::getDeviceStats(device).reserved_bytes[0].current;
  size_t unused = 0, total = 0;
  C10_CUDA_CHECK(cudaMemGetInfo(&unused, &total));
  allocator::setMemoryFraction(std::min(before_, static_cast<double>(held + bytes) / static_cast<double>(total)),
                               device);
}

MemoryLimit::~MemoryLimit() {
  c10::cuda::CUDACachingAllocator::setMemoryFraction(before_, static_cast<c10::DeviceIndex>(device_));
}

bool is_captured(const at::Tensor& on) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  C10_CUDA_CHECK(cudaStreamIsCapturing(c10::cuda::getCurrentCUDAStream(on.device().index()).stream(), &status));
  return status != cudaStreamCaptureStatusNone;
}

std::string gpu_and_libraries(const at::Tensor& on) {
  cudaDeviceProp properties{};
  int driver = 0;
  C10_CUDA_CHECK(cudaGetDeviceProperties(&properties, on.device().index()));
  C10_CUDA_CHECK(cudaDriverGetVersion(&driver));
  return concat(properties.name, ", CUDA ", driver, ", cuDNN ", at::detail::getCUDAHooks().versionCuDNN());
}

cuda::Stream current_stream(const at::Tensor& tensor) {
  return c10::cuda::getCurrentCUDAStream(tensor.device().index()).stream();
}

at::Tensor empty_outside_of_graphs(const std::vector<int64_t>& size, const at::Tensor& like) {
  // Pools belong to the stream that is captured, so another one is current meanwhile; the mode lets this thread ask the
  // driver for memory although one of its streams is being captured.
  const c10::cuda::CUDAStreamCaptureModeGuard mode(cudaStreamCaptureModeRelaxed);
  const c10::cuda::CUDAStreamGuard other(c10::cuda::getStreamFromPool(true, like.device().index()));
  return at::empty(size, like.options());
}

}  // namespace vox::ops
