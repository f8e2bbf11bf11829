// What transforms do to the values of a gathered patch, as data. The definitions are those of augment/, which the CPU
// runs; a GPU runs these steps.
#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "base/random.h"
#include "base/shape.h"
#include "kernels/gamma.h"

namespace vox {
namespace step {

struct Multiply {
  float factor;
};
struct Add {
  float amount;
};
struct Ramp {  // + float(start + along z + along y) + float(along x) * x
  double start, along[3];
};
struct Noise {  // draw first + i for voxel i
  float sigma;
  Random random;
  int64_t first;
};
struct Lights {  // * factor + shift of the slice across the axis
  int axis;
  std::vector<float> factor, shift;
};
struct Contrast {  // about the mean
  float factor;
  bool preserve_range;
};
struct Invert {};  // about the mean
struct Gamma {
  GammaCurve curve;
};
struct Fill {  // boxes, one after the other
  std::vector<Box3> boxes;
  std::vector<float> values;  // empty: the mean that the patch had
};
struct NoiseInBoxes {
  std::vector<Box3> boxes;
  float sigma;
  Random random;
  int64_t first;
};
struct Blur {
  double sigma[3];
};
struct Sharpen {
  double sigma;
  float strength;
};
struct LowResolution {
  Extent3 coarse;
};
struct ReplacedSection {
  int64_t section, first, second;  // by the mean of these two, which may be one
};
struct ReplaceSections {  // one after the other
  std::vector<ReplacedSection> all;
};
struct BlurSections {
  std::vector<int64_t> sections;
  double sigma;
};
struct SmearSections {
  std::vector<int64_t> sections;
  double y, x, length;  // unit direction
};

}  // namespace step

using IntensityStep = std::variant<step::Multiply, step::Add, step::Ramp, step::Noise, step::Lights, step::Contrast,
                                   step::Invert, step::Gamma, step::Fill, step::NoiseInBoxes, step::Blur, step::Sharpen,
                                   step::LowResolution, step::ReplaceSections, step::BlurSections, step::SmearSections>;

}  // namespace vox
