// What is done to a prediction before it is written: steps on a registry, run in the order of the recipe
// (inference.postprocess) or of `voxloom convert --postprocess`. A new one is a function and a line in steps.list.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/shape.h"
#include "config/options.h"

namespace vox {

struct PostVolume {
  Extent3 extent;
  std::vector<float> probability;  // empty where only labels came
  std::vector<uint8_t> mask;       // 0 and 1; empty until a step has cut the probabilities
};

using PostStep = std::function<void(PostVolume&)>;

struct PostEntry {
  std::string name, help;
  bool cuts = false;  // makes the mask from probabilities; every other step needs a mask
  std::function<PostStep(const Tree& params)> make;
};
const std::vector<PostEntry>& all_post_steps();

class PostChain {
 public:
  explicit PostChain(const std::vector<PostOptions>& steps);  // Error names what there is, and what cannot follow
  bool empty() const { return steps_.empty(); }
  bool wants_probabilities() const { return cuts_first_; }
  void run(PostVolume& volume) const;  // Error where it begins with a cut but only labels came

 private:
  std::vector<PostStep> steps_;
  bool cuts_first_ = false;
};

}  // namespace vox
