// Inside the GPU's intensity transforms: steps planned as passes over a patch. A pass loads a voxel (or smooths or
// coarsens around it), applies pointwise operations to it, stores it, and may leave the moments of what it stored. All
// of it is plain data that travels with the launch; pointers are the device's.
#pragma once

#include <cstdint>
#include <cstring>
#include <variant>
#include <vector>

#include "kernels/gather.h"
#include "kernels/intensity_steps.h"

namespace vox::cuda {

// Small tables, gathered on the host while a batch is planned and copied to `device` at once.
class Tables {
 public:
  explicit Tables(const std::byte* device) : device_(device) {}
  template <class T>
  const T* add(const T* values, size_t count) {
    const size_t at = (bytes_.size() + 15) / 16 * 16;
    bytes_.resize(at + count * sizeof(T));
    if (count > 0) std::memcpy(bytes_.data() + at, values, count * sizeof(T));
    return reinterpret_cast<const T*>(device_ + at);
  }
  template <class T>
  const T* add(const std::vector<T>& values) {
    return add(values.data(), values.size());
  }
  const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  const std::byte* device_;
  std::vector<std::byte> bytes_;
};

struct Moments {
  float low, high;
  double mean, deviation;
};
struct PartialMoments {
  double count, mean, squares;
  float low, high;
};
constexpr int kMomentSlots = 64, kMomentBlocks = 1024;
struct MomentMemory {
  Moments slots[kMomentSlots];
  PartialMoments partials[kMomentBlocks];
};

enum class PointKind : int32_t {
  kMultiply,
  kAdd,
  kRamp,
  kNoise,
  kLights,
  kContrast,
  kInvert,
  kGamma,
  kRestore,  // moments of slot `second` become those of slot `first`
  kFill,
  kNoiseInBoxes
};
struct TableBox {
  int32_t begin[3], end[3];
};
struct PointOp {
  PointKind kind{};
  int32_t axis = 0, count = 0;      // count: boxes
  int32_t slot = -1, after = -1;    // moments before, and after a gamma
  bool flag = false;                // preserve_range, inverted, fill by mean
  float a = 0;                      // factor, amount, sigma, exponent
  double start = 0, along[3] = {};  // of a ramp
  uint64_t seed = 0, sample = 0;    // of noise
  uint32_t stream = 0;
  int64_t first = 0;
  const float* values = nullptr;  // lights: factors, then shifts; fill: one a box
  const TableBox* boxes = nullptr;
};

enum class LoadKind : int32_t { kPlain, kBlur, kSharpen, kLowResolution };
struct CoarseTap {  // fine voxels that stand for the two coarse ones beside a voxel
  int32_t low, high;
  float fraction;
};
struct Load {
  LoadKind kind = LoadKind::kPlain;
  const float* from = nullptr;
  int32_t axis = 0, radius = 0;     // of a smoothing
  const float* weights = nullptr;   // from the centre outwards
  const float* original = nullptr;  // to be sharpened: what `from` is smoothed from
  float strength = 0;
  const CoarseTap* taps[3] = {};
};

constexpr int kMaxOps = 12;
struct PointPass {
  int32_t extent[3] = {};
  Load load;
  int32_t count = 0;  // of ops
  PointOp ops[kMaxOps];
  float* to = nullptr;   // null: nothing is stored here
  GatherOutput output;   // data null: not here either
  int32_t moments = -1;  // slot; -1: none
  MomentMemory* memory = nullptr;
};

enum class SectionKind : int32_t { kReplace, kBlurX, kBlurY, kSmear, kCopy };
struct SectionPass {
  SectionKind kind{};
  int32_t extent[3] = {};
  const float* from = nullptr;
  float* to = nullptr;
  const int32_t* sections = nullptr;  // kReplace: three a section
  int32_t count = 0, radius = 0;
  const float* weights = nullptr;
  double y = 0, x = 0, length = 0;
};

using Pass = std::variant<PointPass, SectionPass>;

struct PatchMemory {
  float* plane[3] = {};  // the gathered patch, and room for two more
  MomentMemory* moments = nullptr;
};
// The passes that turn the patch in plane 0 into `output`, which may be that plane.
std::vector<Pass> plan_passes(const std::vector<IntensityStep>& steps, const GatherOutput& output,
                              const PatchMemory& memory, Tables& tables);

}  // namespace vox::cuda
