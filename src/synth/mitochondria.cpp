// Electron microscopy of tissue, roughly: a fibrous grey ground, dark membranes of cells, and mitochondria as dark
// ellipsoids with bright cristae inside and a double membrane around, in every orientation. Their grey overlaps with
// that of membranes and vesicles, so that no threshold finds them. Sections may be thicker than voxels are wide: the
// shapes are drawn in isotropic units and sampled.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/file.h"
#include "base/random.h"
#include "base/thread_pool.h"
#include "io/format.h"
#include "synth/smooth_field.h"
#include "synth/synth.h"

namespace vox {
namespace {

constexpr double kGround = 150, kMembrane = 70, kMatrix = 105, kCristae = 45;  // grey values
constexpr double kNoise = 16;
constexpr uint32_t kTextureStream = 32, kCellStream = 33, kDriftStream = 34, kPlaceStream = 35, kNoiseStream = 36,
                   kVesicleStream = 37;

struct Ellipsoid {
  double centre[3];
  double axis[3][3];  // rows: unit axes over their half lengths
  double cristae;     // distance between the folds, in half lengths
};

// Random orthogonal axes by Gram and Schmidt.
void draw_axes(Random& random, const double (&half)[3], double (&axis)[3][3]) {
  for (int i = 0; i < 3; ++i) {
    for (double& part : axis[i]) part = random.normal();
    for (int k = 0; k < i; ++k) {
      double along = 0;
      for (int d = 0; d < 3; ++d) along += axis[i][d] * axis[k][d];
      for (int d = 0; d < 3; ++d) axis[i][d] -= along * axis[k][d];
    }
    const double length = std::sqrt(axis[i][0] * axis[i][0] + axis[i][1] * axis[i][1] + axis[i][2] * axis[i][2]);
    for (double& part : axis[i]) part /= length;
  }
  for (int i = 0; i < 3; ++i)
    for (double& part : axis[i]) part /= half[i];
}

std::vector<Ellipsoid> draw_ellipsoids(const Extent3& size, double thickness, uint64_t seed) {
  Random random(seed, 0, kSynthStream + kPlaceStream);
  const double volume = static_cast<double>(size.voxels()) * thickness;
  const int64_t count = std::max<int64_t>(2, std::llround(volume / 26000));
  std::vector<Ellipsoid> all;
  for (int64_t i = 0; i < count; ++i) {
    Ellipsoid one{};
    for (int axis = 0; axis < 3; ++axis) {
      const double side = static_cast<double>(size[axis]) * (axis == 0 ? thickness : 1);
      one.centre[axis] = random.uniform(0, side);
    }
    const double width = random.uniform(5, 9);
    draw_axes(random, {width * random.uniform(1.4, 3.2), width * random.uniform(0.8, 1.2), width}, one.axis);
    one.cristae = random.uniform(0.30, 0.45);
    all.push_back(one);
  }
  return all;
}

struct Inside {
  double radius = 2;  // 1 on the surface of the nearest ellipsoid
  double along = 0;   // its coordinate along the long axis, in distances between cristae
};

Inside nearest_ellipsoid(const std::vector<Ellipsoid>& near, const double (&at)[3]) {
  Inside found;
  for (const Ellipsoid& one : near) {
    double squares = 0, along = 0;
    for (int i = 0; i < 3; ++i) {
      double part = 0;
      for (int d = 0; d < 3; ++d) part += one.axis[i][d] * (at[d] - one.centre[d]);
      squares += part * part;
      if (i == 0) along = part / one.cristae;
    }
    if (squares < found.radius * found.radius) found = {std::sqrt(squares), along};
  }
  return found;
}

// Those that reach slice z.
std::vector<Ellipsoid> reaching(const std::vector<Ellipsoid>& all, double z) {
  std::vector<Ellipsoid> near;
  for (const Ellipsoid& one : all)
    if (std::abs(one.centre[0] - z) < 30) near.push_back(one);
  return near;
}

struct Fields {
  SmoothField texture, cells, drift, vesicles;

  Fields(const Extent3& size, uint64_t seed)
      : texture(seed, kTextureStream, size, 3),
        cells(seed, kCellStream, size, 22),
        drift(seed, kDriftStream, size, 48),
        vesicles(seed, kVesicleStream, size, 5) {}
};

double grey_value(const Inside& inside, float texture, float cells, float vesicles) {
  if (inside.radius < 1) {
    if (inside.radius > 0.88) return kMembrane;
    const double fold = std::cos(2 * std::numbers::pi * inside.along);
    return kMatrix + kCristae * std::max(0.0, fold - 0.3) + 8 * texture;
  }
  if (std::abs(cells) < 0.045) return kMembrane;  // membranes of cells: where a smooth field changes sign
  if (vesicles > 1.35f) return kMatrix;
  return kGround + 22 * texture;
}

void draw_section(const Fields& fields, const std::vector<Ellipsoid>& all, double thickness, uint64_t seed, int64_t z,
                  Volume& image, Volume& label) {
  const Extent3 size = image.info.extent;
  const double depth = static_cast<double>(z) * thickness;
  const std::vector<Ellipsoid> near = reaching(all, depth);
  std::vector<float> texture, cells, drift, vesicles;
  for (int64_t y = 0; y < size.y; ++y) {
    fields.texture.row(z, y, texture);
    fields.cells.row(z, y, cells);
    fields.drift.row(z, y, drift);
    fields.vesicles.row(z, y, vesicles);
    const Random noise(seed, static_cast<uint64_t>(z * size.y + y), kSynthStream + kNoiseStream);
    const int64_t row = (z * size.y + y) * size.x;
    for (int64_t column = 0; column < size.x; ++column) {
      const size_t x = static_cast<size_t>(column);
      const double at[3] = {depth, static_cast<double>(y), static_cast<double>(column)};
      const Inside inside = nearest_ellipsoid(near, at);
      const double grain = normal_from_bits(noise.bits_at(static_cast<uint32_t>(x)));
      const double value = grey_value(inside, texture[x], cells[x], vesicles[x]) + 14 * drift[x] + kNoise * grain;
      image.data.as<uint8_t>()[row + column] = static_cast<uint8_t>(std::clamp(std::lround(value), 0L, 255L));
      label.data.as<uint8_t>()[row + column] = inside.radius < 1;
    }
  }
}

void make_all(const SynthRequest& request, ThreadPool& pool) {
  const fs::path folder(request.folder);
  for (int64_t i = 0; i < request.count; ++i) {
    const std::string id = concat("em_", i < 10 ? "00" : i < 100 ? "0" : "", i);
    const uint64_t seed = request.seed * 1000003 + static_cast<uint64_t>(i);
    const SynthPair pair = make_mitochondria(request.size, seed, request.thickness, pool);
    write_volume((folder / "images" / (id + request.suffix)).string(), pair.image, {}, &pool);
    write_volume((folder / "labels" / (id + request.suffix)).string(), pair.label, {}, &pool);
  }
}

}  // namespace

SynthPair make_mitochondria(const Extent3& size, uint64_t seed, double thickness, ThreadPool& pool) {
  VOX_CHECK(size.z > 0 && size.y > 0 && size.x > 0, "tissue of size ", size, " has no voxels");
  VOX_ASSERT(thickness > 0);
  const Spacing3 spacing{.z_mm = 5e-6 * thickness, .y_mm = 5e-6, .x_mm = 5e-6};  // 5 nm
  SynthPair pair{allocate_volume({.extent = size, .spacing = spacing}),
                 allocate_volume({.extent = size, .spacing = spacing})};
  const Fields fields(size, seed);
  const std::vector<Ellipsoid> all = draw_ellipsoids(size, thickness, seed);
  pool.for_each(size.z, [&](int64_t z) { draw_section(fields, all, thickness, seed, z, pair.image, pair.label); });
  return pair;
}

SynthEntry mitochondria_synth() {
  return {"mitochondria", "electron microscopy: mitochondria with cristae among membranes and vesicles", make_all};
}

}  // namespace vox
