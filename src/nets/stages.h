// The stages of an encoder-decoder, read from the options: what every U-Net of the list begins with.
#pragma once

#include <cstdint>
#include <vector>

#include "base/shape.h"
#include "config/options.h"

namespace vox {

struct StagePlan {
  int64_t filters = 0, convs = 2;
  Extent3 stride{1, 1, 1}, kernel{3, 3, 3};
};

struct StageDefaults {
  std::vector<int64_t> filters;
  int64_t convs = 2;
  Extent3 first_stride{1, 1, 1}, stride{2, 2, 2};
};

// One number of filters is the width of the first stage: doubled from stage to stage up to nnU-Net's largest, 320.
// Error where lists do not agree in length, or hold what no layer can have.
std::vector<StagePlan> plan_stages(const ModelOptions& options, const StageDefaults& defaults);

// Convolutions of the decoder's levels, finest first: model.decoder_convs, or those of the encoder's level.
std::vector<int64_t> decoder_convs(const ModelOptions& options, const std::vector<StagePlan>& plan);

// Error where the first stage has a stride: the prediction would be smaller than the image.
void require_full_resolution(const std::vector<StagePlan>& plan);

Extent3 divisor_of(const std::vector<StagePlan>& plan);

}  // namespace vox
