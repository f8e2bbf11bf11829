// A rolled sheet in CT. The cross-section is an Archimedean spiral about an axis that wanders with z; a smooth warp
// bends it, turns are pressed together until some touch, holes interrupt the sheet, and part of the volume is
// unlabeled. Brightness drifts by more than the sheet's contrast and noise is as strong as it, so that no global
// threshold finds the sheet while its shape, locally, is plain: what a network must learn on real scrolls too.
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

constexpr double kPitch = 12;           // voxels between turns
constexpr double kHalfThickness = 1.5;  // voxels
constexpr double kContrast = 29;        // grey values between papyrus and air
constexpr double kDrift = 58;           // grey values, of the slow change of brightness
constexpr double kNoise = 24;           // grey values
constexpr double kWarp = 0.33;          // turns
constexpr double kContact = 0.8;        // of a turn: how far odd turns are pressed outwards where turns touch
constexpr double kHoles = 1.05;         // above this value of its field the sheet is missing
constexpr double kUnlabeled = 0.95;     // above this value of its field nobody labelled

constexpr uint32_t kWarpStream = 0, kFineWarpStream = 1, kHoleStream = 2, kDriftStream = 3, kFibreStream = 4,
                   kUnlabeledStream = 5, kAxisStream = 6, kNoiseStream = 7, kContactStream = 8;

// Small volumes see the drift too.
double drift_cell(const Extent3& size) {
  return std::min(36.0, static_cast<double>(std::min({size.z, size.y, size.x})) / 2);
}

struct Fields {
  SmoothField warp, fine_warp, holes, drift, fibres, unlabeled, contact;

  Fields(const Extent3& size, uint64_t seed)
      : warp(seed, kWarpStream, size, 40),
        fine_warp(seed, kFineWarpStream, size, 14),
        holes(seed, kHoleStream, size, 9),
        drift(seed, kDriftStream, size, drift_cell(size)),
        fibres(seed, kFibreStream, size, 2.5),
        unlabeled(seed, kUnlabeledStream, size, 48),
        contact(seed, kContactStream, size, 30) {}
};

struct Rows {  // of each field, reused from row to row
  std::vector<float> warp, fine_warp, holes, drift, fibres, unlabeled, contact, noise;
};

struct Axis {  // of the roll: where it crosses slice z
  double y, x, turn;
};
Axis axis_at(const Extent3& size, uint64_t seed, int64_t z) {
  const Random random(seed, 0, kSynthStream + kAxisStream);
  const auto uniform = [&](uint32_t draw) { return static_cast<double>(uniform_from_bits(random.bits_at(draw))); };
  const double t = static_cast<double>(z) / static_cast<double>(std::max<int64_t>(1, size.z));
  const double wander = 6 * std::sin(2 * std::numbers::pi * (t * 0.7 + uniform(0)));
  // The axis lies in or near a corner region as often as inside, so that curved and nearly flat turns both appear.
  return {.y = (uniform(1) * 1.4 - 0.2) * static_cast<double>(size.y) + wander,
          .x = (uniform(2) * 1.4 - 0.2) * static_cast<double>(size.x) - wander,
          .turn = uniform(3)};
}

// White noise smoothed along x, as reconstruction kernels do; unit variance.
void noise_row(uint64_t seed, uint64_t row, std::vector<float>& out, size_t width) {
  const Random random(seed, row, kSynthStream + kNoiseStream);
  const auto white = [&](size_t i) { return normal_from_bits(random.bits_at(static_cast<uint32_t>(i))); };
  out.resize(width);
  double before = white(0), here = white(1);
  for (size_t x = 0; x < width; ++x) {
    const double after = white(x + 2);
    out[x] = static_cast<float>((before + 2 * here + after) / std::sqrt(6.0));
    before = here;
    here = after;
  }
}

// Sheets lie at whole numbers of turns, but odd ones are pressed towards the next where the contact field is high.
// Nothing is pressed at the angle where the count of turns jumps, and odd would become even.
double turns_to_sheet(double turns, double angle, float contact) {
  const double pressed = kContact * std::clamp((contact - 0.25) * 1.3, 0.0, 1.0) * std::sqrt((1 + std::cos(angle)) / 2);
  double nearest = 1;
  for (int64_t k = std::llround(turns) - 1; k <= std::llround(turns) + 1; ++k)
    nearest = std::min(nearest, std::abs(turns - static_cast<double>(k) - (k % 2 != 0 ? pressed : 0)));
  return nearest;
}

void draw_row(const Fields& fields, const Axis& axis, uint64_t seed, const Extent3& size, int64_t z, int64_t y,
              uint8_t* image, uint8_t* label) {
  thread_local Rows rows;
  fields.warp.row(z, y, rows.warp);
  fields.fine_warp.row(z, y, rows.fine_warp);
  fields.holes.row(z, y, rows.holes);
  fields.drift.row(z, y, rows.drift);
  fields.fibres.row(z, y, rows.fibres);
  fields.unlabeled.row(z, y, rows.unlabeled);
  fields.contact.row(z, y, rows.contact);
  noise_row(seed, static_cast<uint64_t>(z * size.y + y), rows.noise, static_cast<size_t>(size.x));
  for (int64_t column = 0; column < size.x; ++column) {
    const size_t x = static_cast<size_t>(column);
    const double dy = static_cast<double>(y) - axis.y, dx = static_cast<double>(column) - axis.x;
    const double angle = std::atan2(dy, dx);
    const double turns = std::hypot(dy, dx) / kPitch - angle / (2 * std::numbers::pi) + axis.turn +
                         kWarp * rows.warp[x] + 0.12 * rows.fine_warp[x];
    const double distance = kPitch * turns_to_sheet(turns, angle, rows.contact[x]);  // voxels, where the warp is flat
    const bool sheet = distance < kHalfThickness && rows.holes[x] < kHoles;
    const double profile = sheet ? std::min(1.0, (kHalfThickness + 0.5 - distance)) : 0.0;
    const double value = 96 + kDrift * rows.drift[x] + profile * (kContrast + 8 * rows.fibres[x]) +
                         (sheet ? 0 : 6 * rows.fibres[x]) + kNoise * rows.noise[x];
    image[x] = static_cast<uint8_t>(std::clamp(std::lround(value), 0L, 255L));
    label[x] = rows.unlabeled[x] > kUnlabeled ? 2 : sheet ? 1 : 0;
  }
}

void make_scrolls(const SynthRequest& request, ThreadPool& pool) {
  const fs::path folder(request.folder);
  std::string table = "id,scroll_id\n";
  for (int64_t i = 0; i < request.count; ++i) {
    const std::string id = concat("scroll_", i < 10 ? "00" : i < 100 ? "0" : "", i);
    table += concat(id, ",", 1 + i / 2, "\n");  // two volumes a scroll: splits must keep them together
    const ScrollPair pair = make_scroll(request.size, request.seed * 1000003 + static_cast<uint64_t>(i), pool);
    write_volume((folder / "train_images" / (id + request.suffix)).string(), pair.image, {}, &pool);
    write_volume((folder / "train_labels" / (id + request.suffix)).string(), pair.label, {}, &pool);
  }
  write_file(folder / "train.csv", table);
}

}  // namespace

ScrollPair make_scroll(const Extent3& size, uint64_t seed, ThreadPool& pool) {
  VOX_CHECK(size.z > 0 && size.y > 0 && size.x > 0, "a scroll of size ", size, " has no voxels");
  ScrollPair pair{allocate_volume({.extent = size}), allocate_volume({.extent = size})};
  const Fields fields(size, seed);
  pool.for_each(size.z, [&](int64_t z) {
    const Axis axis = axis_at(size, seed, z);
    for (int64_t y = 0; y < size.y; ++y) {
      const int64_t row = (z * size.y + y) * size.x;
      draw_row(fields, axis, seed, size, z, y, pair.image.data.as<uint8_t>() + row,
               pair.label.data.as<uint8_t>() + row);
    }
  });
  return pair;
}

SynthEntry scroll_synth() {
  return {"scroll", "a rolled sheet in CT with gaps, touching turns, drift and an unlabeled region", make_scrolls};
}

}  // namespace vox
