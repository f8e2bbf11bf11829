// What layers leave in a trace while they run on meta Features; nothing where nobody records.
#pragma once

#include "ops/feature.h"

namespace vox::ops {

Feature shape_alone(const at::Tensor& like, int64_t channels, const Extent3& size);

// How many tensors of its output's size the backward of an epilogue keeps: what a norm reads, what an activation that
// does not work in place reads, and the product with a dropout mask.
int64_t tensors_kept(const Epilogue& epilogue);

void record_kept(const Feature& feature, int64_t copies = 1);
void record_kept_fused(int64_t elements);
void record_moved(int64_t elements);  // as Trace::add_moved

struct Reading {
  bool raw = false;
  int64_t joined = 0, written = 0;  // as LayerRecord
};
// What a reader keeps on the fused path: nothing where it reads raw outputs itself, else what it has applied for it.
Reading record_reading(const Feature& input, bool reads_raw);
// Its values go into a sum or a copy, and no gradient needs them where they were.
void record_passed_on(const Feature& feature);
// Whether our own convolutions would take it, on the GPUs they are written for.
bool reads_raw(const ConvLayer& layer);

struct ConvSize {
  int64_t channels;
  Extent3 output, places;  // where the kernel is applied: the output, or the input of a transposed convolution
  Reading reading;
};
Feature record_conv(const at::Tensor& input, const ConvLayer& layer, const Epilogue& epilogue, const ConvSize& conv);

}  // namespace vox::ops
