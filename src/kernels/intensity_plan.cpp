#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "kernels/blur.h"
#include "kernels/intensity_passes.h"
#include "kernels/low_resolution.h"

namespace vox::cuda {
namespace {

class Planner {
 public:
  Planner(const GatherOutput& output, const PatchMemory& memory, Tables& tables)
      : output_(output), memory_(memory), tables_(tables) {
    begin_pass();
  }

  std::vector<Pass> finish() {
    if (output_.data != memory_.plane[0]) {
      pass_.output = output_;
      passes_.push_back(pass_);
      return std::move(passes_);
    }
    if (pass_.load.kind != LoadKind::kPlain && now_ == 0) settle();  // it looks around itself in the output
    if (now_ != 0 || !nothing_to_do()) flush(0);
    return std::move(passes_);
  }

  void operator()(const step::Multiply& s) { point({.kind = PointKind::kMultiply, .a = s.factor}); }
  void operator()(const step::Add& s) { point({.kind = PointKind::kAdd, .a = s.amount}); }
  void operator()(const step::Ramp& s) {
    point({.kind = PointKind::kRamp, .start = s.start, .along = {s.along[0], s.along[1], s.along[2]}});
  }
  void operator()(const step::Noise& s) { point(noise(PointKind::kNoise, s.sigma, s.random, s.first)); }
  void operator()(const step::Lights& s) {
    std::vector<float> both = s.factor;
    both.insert(both.end(), s.shift.begin(), s.shift.end());
    point({.kind = PointKind::kLights,
           .axis = s.axis,
           .count = static_cast<int32_t>(s.factor.size()),
           .values = tables_.add(both)});
  }
  void operator()(const step::Contrast& s) {
    point({.kind = PointKind::kContrast, .slot = moments(), .flag = s.preserve_range, .a = s.factor});
  }
  void operator()(const step::Invert&) { point({.kind = PointKind::kInvert, .slot = moments()}); }
  void operator()(const step::Gamma& s) {
    const int32_t before = moments();
    point({.kind = PointKind::kGamma, .slot = before, .flag = s.curve.inverted, .a = s.curve.exponent});
    if (!s.curve.keep_moments) return;
    point({.kind = PointKind::kRestore, .slot = before, .after = moments()});
  }
  void operator()(const step::Fill& s) {
    PointOp op{.kind = PointKind::kFill, .flag = s.values.empty()};
    if (op.flag) op.slot = moments();
    op.values = s.values.empty() ? nullptr : tables_.add(s.values);
    set_boxes(op, s.boxes);
    point(op);
  }
  void operator()(const step::NoiseInBoxes& s) {
    PointOp op = noise(PointKind::kNoiseInBoxes, s.sigma, s.random, s.first);
    set_boxes(op, s.boxes);
    point(op);
  }
  void operator()(const step::Blur& s) { smooth(s.sigma); }
  void operator()(const step::Sharpen& s) {
    settle();
    const int original = now_;
    smooth({s.sigma, s.sigma, s.sigma});
    if (pass_.load.kind != LoadKind::kBlur) return;  // so narrow that it smooths nothing
    pass_.load.kind = LoadKind::kSharpen;
    pass_.load.original = memory_.plane[original];
    pass_.load.strength = s.strength;
  }
  void operator()(const step::LowResolution& s) {
    if (s.coarse == output_.extent) return;
    settle();
    pass_.load.kind = LoadKind::kLowResolution;
    for (int axis = 0; axis < 3; ++axis) {
      const CoarseTaps from = coarse_taps(output_.extent[axis], s.coarse[axis]);
      std::vector<CoarseTap> taps;
      for (size_t i = 0; i < from.low.size(); ++i) taps.push_back({from.low[i], from.high[i], from.fraction[i]});
      pass_.load.taps[axis] = tables_.add(taps);
    }
  }
  void operator()(const step::ReplaceSections& s) {
    std::vector<int32_t> triples;
    for (const step::ReplacedSection& one : s.all)
      for (const int64_t section : {one.section, one.first, one.second})
        triples.push_back(static_cast<int32_t>(section));
    sections(SectionKind::kReplace, triples, static_cast<int32_t>(s.all.size()));
  }
  void operator()(const step::BlurSections& s) {
    const std::vector<float> kernel = gaussian_half_kernel(s.sigma);
    if (kernel.size() < 2) return;
    SectionPass pass = sections_from(s.sections);
    pass.weights = tables_.add(kernel);
    pass.radius = static_cast<int32_t>(kernel.size()) - 1;
    there_and_back(pass, SectionKind::kBlurX, SectionKind::kBlurY);
  }
  void operator()(const step::SmearSections& s) {
    SectionPass pass = sections_from(s.sections);
    pass.y = s.y, pass.x = s.x, pass.length = s.length;
    there_and_back(pass, SectionKind::kSmear, SectionKind::kCopy);
  }

 private:
  static PointOp noise(PointKind kind, float sigma, const Random& random, int64_t first) {
    return {.kind = kind,
            .a = sigma,
            .seed = random.seed(),
            .sample = random.sample(),
            .stream = random.stream(),
            .first = first};
  }

  void set_boxes(PointOp& op, const std::vector<Box3>& boxes) {
    std::vector<TableBox> table;
    for (const Box3& box : boxes) {
      TableBox one;
      for (int axis = 0; axis < 3; ++axis) {
        one.begin[axis] = static_cast<int32_t>(box.begin[axis]);
        one.end[axis] = static_cast<int32_t>(box.end[axis]);
      }
      table.push_back(one);
    }
    op.boxes = tables_.add(table);
    op.count = static_cast<int32_t>(table.size());
  }

  void begin_pass() {
    pass_ = {};
    for (int axis = 0; axis < 3; ++axis) pass_.extent[axis] = static_cast<int32_t>(output_.extent[axis]);
    pass_.load.from = memory_.plane[now_];
    pass_.memory = memory_.moments;
  }
  bool nothing_to_do() const { return pass_.load.kind == LoadKind::kPlain && pass_.count == 0; }

  // A pass that looks at one voxel alone may write where it read. While something is smoothed to sharpen it, that
  // stays.
  int plane_to_write() const {
    if (pass_.load.kind == LoadKind::kPlain) return now_;
    int plane = 0;
    while (plane == now_ || plane == kept_) ++plane;
    return plane;
  }

  void flush(int to) {
    pass_.to = memory_.plane[to];
    passes_.push_back(pass_);
    now_ = to;
    begin_pass();
  }
  void settle() {
    if (!nothing_to_do()) flush(plane_to_write());
  }

  void point(const PointOp& op) {
    if (pass_.count == kMaxOps) settle();
    pass_.ops[pass_.count++] = op;
  }

  // Of the patch as it is here.
  int32_t moments() {
    VOX_ASSERT(next_slot_ < kMomentSlots);
    const int32_t slot = next_slot_++;
    pass_.moments = slot;
    if (nothing_to_do()) {
      passes_.push_back(pass_);  // reads only
      begin_pass();
    } else {
      flush(plane_to_write());
    }
    return slot;
  }

  // The last axis is left to the pass at hand, for what follows to join it.
  void smooth(const double (&sigma)[3]) {
    settle();
    kept_ = now_;
    for (const int axis : {2, 1, 0}) {
      const std::vector<float> kernel = gaussian_half_kernel(sigma[axis]);
      if (kernel.size() < 2) continue;
      settle();
      pass_.load.kind = LoadKind::kBlur;
      pass_.load.axis = axis;
      pass_.load.radius = static_cast<int32_t>(kernel.size()) - 1;
      pass_.load.weights = tables_.add(kernel);
    }
  }

  SectionPass sections_from(const std::vector<int64_t>& numbers) {
    const std::vector<int32_t> list(numbers.begin(), numbers.end());
    SectionPass pass;
    pass.sections = tables_.add(list);
    pass.count = static_cast<int32_t>(list.size());
    return pass;
  }
  void sections(SectionKind kind, const std::vector<int32_t>& list, int32_t count) {
    SectionPass pass;
    pass.sections = tables_.add(list);
    pass.count = count;
    settle();
    add_sections(pass, kind, now_, now_);
  }
  void there_and_back(const SectionPass& pass, SectionKind there, SectionKind back) {
    settle();
    const int other = now_ == 1 ? 2 : 1;
    add_sections(pass, there, now_, other);
    add_sections(pass, back, other, now_);
  }
  void add_sections(SectionPass pass, SectionKind kind, int from, int to) {
    pass.kind = kind;
    for (int axis = 0; axis < 3; ++axis) pass.extent[axis] = static_cast<int32_t>(output_.extent[axis]);
    pass.from = memory_.plane[from];
    pass.to = memory_.plane[to];
    passes_.push_back(pass);
  }

  GatherOutput output_;
  PatchMemory memory_;
  Tables& tables_;
  std::vector<Pass> passes_;
  PointPass pass_;
  int now_ = 0, kept_ = -1;
  int32_t next_slot_ = 0;
};

}  // namespace

std::vector<Pass> plan_passes(const std::vector<IntensityStep>& steps, const GatherOutput& output,
                              const PatchMemory& memory, Tables& tables) {
  VOX_ASSERT(output.extent.voxels() < (int64_t{1} << 31));
  Planner planner(output, memory, tables);
  for (const IntensityStep& step : steps) std::visit(planner, step);
  return planner.finish();
}

}  // namespace vox::cuda
