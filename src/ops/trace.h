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
  double macs = 0;  // of the whole batch
};

class Trace {  // of this thread; the innermost one records
 public:
  Trace();
  ~Trace();
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;
  static Trace* current();

  void add(LayerRecord record) { layers_.push_back(std::move(record)); }
  const std::vector<LayerRecord>& layers() const { return layers_; }
  // Elements of everything a backward pass would keep: outputs of convolutions, and of whatever is applied on its own.
  void add_kept(int64_t elements) { kept_ += elements; }
  // A checkpointed segment keeps its output alone, and is made again in the backward pass, one at a time.
  void fold_segment(int64_t kept_before, int64_t output) {
    largest_segment_ = std::max(largest_segment_, kept_ - kept_before);
    kept_ = kept_before + output;
  }
  int64_t kept() const { return kept_; }
  int64_t largest_segment() const { return largest_segment_; }

 private:
  std::vector<LayerRecord> layers_;
  int64_t kept_ = 0, largest_segment_ = 0;
  Trace* outer_;
};

}  // namespace vox::ops
