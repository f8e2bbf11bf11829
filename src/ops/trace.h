// Records the layers that run on meta Features while it lives: what `train --dry-run` prints, and how multiply-adds are
// counted, once for every network.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace vox::ops {

struct LayerRecord {
  std::string name;
  std::vector<int64_t> output;  // [N, C, Z, Y, X]
  int64_t parameters = 0;
  double macs = 0;         // of the whole batch
  int64_t input = 0;       // elements
  int64_t kept_fused = 0;  // of everything up to here, as Trace::Kept counts
  // What its time follows from:
  int64_t in_channels = 1, groups = 1, taps = 1;  // taps: voxels of the kernel
  bool strided = false, transposed = false;
  bool own_kernel = false;  // one of ours takes it, on the GPUs it is written for
  bool has_norm = false;
  int64_t joined = 0;   // elements of its input where that is two tensors
  int64_t written = 0;  // elements that the fused path writes out before it: norm applied, tensors joined
};

// Our own convolutions take channels by the block: an image of few gets so many of zeros (ops/fused_conv_cuda.cpp).
constexpr int64_t kChannelBlock = 32;
inline int64_t channels_of_zeros(const LayerRecord& first) {
  const int64_t out = first.output[1];
  const bool has_kernel = out == kChannelBlock || out == 2 * kChannelBlock;
  const bool plain = first.taps == 27 && !first.strided && first.groups == 1 && has_kernel;
  return plain && first.in_channels > 2 && first.in_channels < kChannelBlock ? kChannelBlock - first.in_channels : 0;
}

class Trace {  // of this thread; the innermost one records
 public:
  Trace();
  ~Trace();
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;
  static Trace* current();

  void add(LayerRecord record) { layers_.push_back(std::move(record)); }
  const std::vector<LayerRecord>& layers() const { return layers_; }
  // Elements of everything a backward pass would keep: outputs of convolutions, and of whatever is applied on its own;
  // and of what it would keep on the fused path of a GPU, which applies norms where they are read.
  struct Kept {
    int64_t plain = 0, fused = 0;
  };
  void add_kept(int64_t elements) { kept_.plain += elements; }
  void add_kept_fused(int64_t elements) { kept_.fused += elements; }
  // A checkpointed segment keeps its output alone, and is made again in the backward pass, one at a time.
  void fold_segment(const Kept& before, int64_t output) {
    largest_.plain = std::max(largest_.plain, kept_.plain - before.plain);
    largest_.fused = std::max(largest_.fused, kept_.fused - before.fused);
    kept_ = {before.plain + output, before.fused + output};
  }
  // Elements that everything but convolutions and their norms reads and writes, forward and backward.
  void add_moved(int64_t elements) { moved_ += elements; }
  int64_t moved() const { return moved_; }
  const Kept& kept() const { return kept_; }
  const Kept& largest_segment() const { return largest_; }

 private:
  std::vector<LayerRecord> layers_;
  Kept kept_, largest_;
  int64_t moved_ = 0;
  Trace* outer_;
};

}  // namespace vox::ops
