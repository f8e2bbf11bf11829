// Where the gradients of weights lie in the end: a network offers its float32 buffers, and a layer that can write there
// does, instead of handing autograd a gradient in the weight's type that would be copied later.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>

namespace vox::ops {

class GradientPlaces {
 public:
  struct Place {
    at::Tensor buffer;     // float32, laid out as the weight
    bool counts = false;   // it holds a gradient already, which is added to
    bool written = false;  // by a backward pass since offer()
  };
  GradientPlaces() = default;
  ~GradientPlaces();
  GradientPlaces(const GradientPlaces&) = delete;
  GradientPlaces& operator=(const GradientPlaces&) = delete;

  void offer(const at::Tensor& weight, const at::Tensor& buffer, bool counts);
  // Whether a backward pass has written there since it was offered; then what it holds counts.
  bool take(const at::Tensor& weight);
  void withdraw();

  static Place* of(const at::Tensor& weight);  // null: none is offered

 private:
  std::map<const void*, Place> places_;
};

}  // namespace vox::ops
