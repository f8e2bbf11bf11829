// What is done to a prediction before it is written: steps on a registry, run in the order of the recipe
// (inference.postprocess) or of `voxloom convert --postprocess`. A new one is a function and a line in steps.list.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/shape.h"
#include "config/config.h"

namespace vox {

struct PostVolume {
  Extent3 extent;
  std::vector<float> probability{};  // [channels, extent]; empty where only labels came
  std::vector<uint8_t> mask{};       // 0 and 1; empty until a step has cut the probabilities
  int64_t channels = 1;              // of the probabilities; behind the first, a cut one, what makes objects needs
  std::vector<uint32_t> objects{};   // from 1; empty unless the last step numbers objects
  std::vector<uint8_t> covered{};    // 0 where nothing was predicted, so that no object can be; empty: nowhere
};

// Memory that a step takes while it runs, beside the probabilities and the mask.
struct PostBytes {
  int64_t voxel = 0, channel = 0;  // for each voxel, and for each channel of a voxel
};

struct PostStep {
  std::function<void(PostVolume&)> run;
  PostBytes bytes{};
  // Error where so many channels of probabilities, or so many voxels, are nothing for it; empty: it takes any.
  std::function<void(int64_t channels, const Extent3& extent)> check{};
};

enum class PostKind {
  kCut,     // makes the mask from probabilities: the first step
  kMask,    // changes the mask
  kObjects  // makes objects from probabilities or a mask: the last step
};

struct PostEntry {
  std::string name, help;
  PostKind kind;
  std::function<PostStep(const Tree& params)> make;
  std::vector<OptionRow> (*options)();
  bool of_affinities = false;  // where it makes objects; else of the foreground and, if there is one, the boundary
};
const std::vector<PostEntry>& all_post_steps();

class PostChain {
 public:
  explicit PostChain(const std::vector<PostOptions>& steps);  // Error names what there is, and what cannot follow
  bool empty() const { return steps_.empty(); }
  bool wants_probabilities() const { return !kinds_.empty() && kinds_.front() != PostKind::kMask; }
  bool wants_channels() const { return !kinds_.empty() && kinds_.front() == PostKind::kObjects; }
  bool wants_affinities() const { return wants_channels() && of_affinities_; }
  bool makes_objects() const { return !kinds_.empty() && kinds_.back() == PostKind::kObjects; }
  // What run() would refuse, known before there are probabilities.
  void check(int64_t channels, const Extent3& extent) const;
  int64_t bytes_per_voxel(int64_t channels) const;  // of the step that takes most
  void run(PostVolume& volume) const;               // Error where it begins with a cut but only labels came

 private:
  std::vector<PostStep> steps_;
  std::vector<PostKind> kinds_;
  bool of_affinities_ = false;  // its first step is
};

}  // namespace vox
