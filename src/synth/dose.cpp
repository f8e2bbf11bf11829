// A head-and-neck phantom for dose prediction, in the axes of OpenKBP: axis 0 from front to back, axis 1 from right to
// left, axis 2 from head to foot. CT, ten structures of which some are not contoured, the region that may receive dose,
// and a dose: nine coplanar beams towards the targets, a plateau at the prescription inside them, fall-off outside.
#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <utility>

#include "base/file.h"
#include "base/random.h"
#include "base/thread_pool.h"
#include "io/format.h"
#include "io/openkbp.h"
#include "synth/smooth_field.h"
#include "synth/synth.h"

namespace vox {
namespace {

constexpr uint32_t kAnatomyStream = 64, kTissueStream = 65;
constexpr double kBeams = 9;

struct Shape {  // an ellipsoid; in units of the side, about the centre of the volume
  double centre[3], half[3];

  double radius(const double (&at)[3]) const {
    double squares = 0;
    for (int axis = 0; axis < 3; ++axis) {
      const double part = (at[axis] - centre[axis]) / half[axis];
      squares += part * part;
    }
    return std::sqrt(squares);
  }
};

// In the order of the structures of OpenKBP, with how often each is contoured there.
struct Anatomy {
  Shape body{{0, 0, 0}, {0.30, 0.26, 0.62}};
  std::array<Shape, 10> structure;
  std::array<bool, 10> there;
};
constexpr std::array<double, 10> kContoured = {0.90, 0.92, 0.97, 0.97, 0.41, 0.51, 0.69, 0.90, 0.47, 1.0};
constexpr std::array<double, 3> kPrescription = {56, 63, 70};  // Gy, of the last three structures
constexpr std::array<Shape, 10> kTypical = {{{{0.06, 0, -0.28}, {0.035, 0.04, 0.07}},       // Brainstem
                                             {{0.12, 0, 0.10}, {0.022, 0.022, 0.34}},       // SpinalCord
                                             {{0.03, -0.14, -0.14}, {0.06, 0.035, 0.07}},   // RightParotid
                                             {{0.03, 0.14, -0.14}, {0.06, 0.035, 0.07}},    // LeftParotid
                                             {{0.05, 0, 0.32}, {0.02, 0.03, 0.12}},         // Esophagus
                                             {{-0.08, 0, 0.16}, {0.05, 0.05, 0.05}},        // Larynx
                                             {{-0.15, 0, -0.04}, {0.06, 0.15, 0.05}},       // Mandible
                                             {{-0.02, 0.10, 0.08}, {0.09, 0.06, 0.20}},     // PTV56
                                             {{-0.03, -0.08, 0.02}, {0.08, 0.06, 0.14}},    // PTV63
                                             {{-0.06, 0.02, -0.04}, {0.07, 0.08, 0.09}}}};  // PTV70

Anatomy draw_anatomy(uint64_t seed) {
  Random random(seed, 0, kSynthStream + kAnatomyStream);
  Anatomy anatomy;
  anatomy.structure = kTypical;
  const double size = random.uniform(0.85, 1.1);
  for (double& half : anatomy.body.half) half *= size * random.uniform(0.95, 1.05);
  for (size_t i = 0; i < anatomy.structure.size(); ++i) {
    Shape& shape = anatomy.structure[i];
    const double wander = i >= 7 ? 0.035 : 0.012;  // tumours sit where they sit
    for (int axis = 0; axis < 3; ++axis) {
      shape.centre[axis] = size * (shape.centre[axis] + wander * random.uniform(-1, 1));
      shape.half[axis] *= size * random.uniform(0.85, 1.2);
    }
    anatomy.there[i] = random.chance(kContoured[i]);
  }
  anatomy.there[9] = true;
  return anatomy;
}

// Voxels of structure i, a bit each; targets do not overlap, the higher prescription wins.
uint16_t structures_at(const Anatomy& anatomy, const double (&at)[3]) {
  unsigned bits = 0;
  for (size_t i = 0; i < anatomy.structure.size(); ++i)
    if (anatomy.there[i] && anatomy.structure[i].radius(at) < 1) bits |= 1u << i;
  if (bits & 1u << 9) bits &= ~(3u << 7);
  if (bits & 1u << 8) bits &= ~(1u << 7);
  return static_cast<uint16_t>(bits);
}

// Smooth in space: each target gives its prescription inside and falls off outside, along beams more slowly.
double dose_at(const Anatomy& anatomy, const double (&at)[3]) {
  double dose = 0;
  for (size_t i = 7; i < 10; ++i) {
    if (!anatomy.there[i]) continue;
    const Shape& target = anatomy.structure[i];
    const double beyond = std::max(0.0, target.radius(at) - 1);
    const double angle = std::atan2(at[1] - target.centre[1], at[0] - target.centre[0]);
    const double along_axis = std::abs(at[2] - target.centre[2]) / target.half[2];
    const double beam = 0.5 + 0.5 * std::cos(kBeams * angle);
    const double reach = 0.8 + 0.9 * beam * std::exp(-std::max(0.0, along_axis - 0.8) * 1.5);
    const double share = 1 / (1 + std::pow(beyond / reach, 2));
    dose = std::max(dose, kPrescription[i - 7] * share * share);
  }
  return dose;
}

struct Phantom {
  Volume ct, structures, dose;  // int16; uint16 bits as in io/openkbp.h; float32 in Gy
};

int16_t ct_at(const Anatomy& anatomy, const double (&at)[3], uint16_t bits, double tissue) {
  const double bone_shell = anatomy.structure[1].radius(at);
  double value = 1020 + 40 * tissue;
  if (bits & 1u << 6 || (bone_shell > 1.2 && bone_shell < 2.2)) value = 1700 + 150 * tissue;  // jaw, spine
  if (bits & 1u << 5) value = 880 + 60 * tissue;                                              // air in the larynx
  return static_cast<int16_t>(std::clamp(std::lround(value), 1L, 4095L));
}

Phantom make_phantom(const Extent3& size, uint64_t seed, const Spacing3& spacing, ThreadPool& pool) {
  const Anatomy anatomy = draw_anatomy(seed);
  const SmoothField tissue(seed, kTissueStream, size, 5);
  const auto volume = [&](DType dtype) {
    return allocate_volume({.dtype = dtype, .extent = size, .spacing = spacing});
  };
  Phantom phantom{volume(DType::kInt16), volume(DType::kUInt16), volume(DType::kFloat32)};
  pool.for_each(size.z, [&](int64_t z) {
    std::vector<float> row;
    for (int64_t y = 0; y < size.y; ++y) {
      tissue.row(z, y, row);
      for (int64_t x = 0; x < size.x; ++x) {
        const int64_t voxel[3] = {z, y, x}, i = (z * size.y + y) * size.x + x;
        double at[3];
        for (int axis = 0; axis < 3; ++axis)
          at[axis] = (static_cast<double>(voxel[axis]) + 0.5) / static_cast<double>(size[axis]) - 0.5;
        const bool body = anatomy.body.radius(at) < 1;
        uint16_t bits = body ? structures_at(anatomy, at) : uint16_t{0};
        const double dose = body ? dose_at(anatomy, at) : 0;
        if (body && dose > 2) bits = static_cast<uint16_t>(bits | 1u << kOpenKbpDoseMaskBit);
        phantom.ct.data.as<int16_t>()[i] = body ? ct_at(anatomy, at, bits, row[static_cast<size_t>(x)]) : int16_t{0};
        phantom.structures.data.as<uint16_t>()[i] = bits;
        phantom.dose.data.as<float>()[i] =
            bits >> kOpenKbpDoseMaskBit & 1 ? static_cast<float>(std::round(dose * 1000) / 1000) : 0.0f;
      }
    }
  });
  return phantom;
}

void write_patient(const fs::path& folder, Phantom& phantom, const Spacing3& spacing) {
  write_openkbp(folder.string(), {.ct = std::move(phantom.ct.data),
                                  .bits = std::move(phantom.structures.data),
                                  .dose = std::move(phantom.dose.data),
                                  .spacing = spacing});
}

Volume structure_mask(const Volume& structures, int bit) {
  Volume mask = allocate_volume({.extent = structures.info.extent, .spacing = structures.info.spacing});
  for (int64_t i = 0; i < structures.info.extent.voxels(); ++i)
    mask.data.as<uint8_t>()[i] = static_cast<uint8_t>(structures.as<uint16_t>()[i] >> bit & 1);
  return mask;
}

// One folder a structure, and every patient has a file in each: an empty one where the structure is not contoured.
void write_volumes(const fs::path& folder, const std::string& file, const Phantom& phantom, ThreadPool& pool) {
  const auto write = [&](const std::string& name, const Volume& volume) {
    write_volume((folder / name / file).string(), volume, {}, &pool);
  };
  write("ct", phantom.ct);
  for (int i = 0; i < 10; ++i) write(kOpenKbpStructures[static_cast<size_t>(i)], structure_mask(phantom.structures, i));
  write("possible_dose_mask", structure_mask(phantom.structures, kOpenKbpDoseMaskBit));
  write("dose", phantom.dose);
}

void make_all(const SynthRequest& request, ThreadPool& pool) {
  const Spacing3 spacing{.z_mm = 3.906, .y_mm = 3.906, .x_mm = 2.5};
  const bool openkbp = request.suffix.empty();
  for (int64_t i = 0; i < request.count; ++i) {
    const std::string id = concat("pt_", i + 1);
    Phantom phantom = make_phantom(request.size, request.seed * 1000003 + static_cast<uint64_t>(i), spacing, pool);
    if (openkbp)
      write_patient(fs::path(request.folder) / id, phantom, spacing);
    else
      write_volumes(request.folder, id + request.suffix, phantom, pool);
  }
}

}  // namespace

SynthEntry dose_synth() {
  return {"dose", "a head-and-neck phantom with ten structures, some missing, and a smooth dose", make_all};
}

}  // namespace vox
