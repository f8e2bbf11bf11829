#include "infer/predict.h"

#include <malloc.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/span.h"
#include "base/text.h"
#include "base/thread_pool.h"
#include "infer/slab_input.h"
#include "io/format.h"
#include "io/volume_name.h"
#include "nets/network.h"
#include "volume/glob.h"
#include "volume/unit.h"

namespace vox {
namespace {

constexpr double kGiB = static_cast<double>(int64_t{1} << 30);

struct Planned {  // one case, from its headers
  Case item;
  CaseUnits units;
  std::string fingerprint;
  std::filesystem::path path;
  int64_t blending = 0, input = 0, whole = 0;  // bytes: sums and windows, the input, at the end
  bool in_slabs = false;                       // the input is read as windows move on
};

// Whole volumes beside the memory that making one takes for a while.
int64_t whole_input_bytes(const CaseUnits& units) {
  int64_t total = 0, passing = 0;
  for (const Unit& unit : units.images) {
    total += unit.stored.bytes();
    passing = std::max(passing, unit.peak_bytes - unit.stored.bytes());
  }
  if (units.mask) total += units.mask->peak_bytes;
  return total + passing + (int64_t{1} << 20);
}

// Labels of NaN would be background, without a word.
void require_numbers(const Slab& slab, const Planned& planned) {
  const Extent3& extent = planned.units.images.front().stored.extent;
  const int64_t count = slab.channels * (slab.z_end - slab.z_begin) * extent.y * extent.x;
  const bool none = std::none_of(slab.logits, slab.logits + count, [](float value) { return std::isnan(value); });
  VOX_CHECK(none, "case ", planned.item.id, ": the network gives NaN in slices ", slab.z_begin, " to ", slab.z_end - 1,
            ": its weights hold NaN or infinity, or its half precision (training.precision) overflows; predict with an "
            "earlier checkpoint, or train with training.precision: bf16-mixed or 32");
}

class Prediction {
 public:
  Prediction(const std::vector<Network*>& networks, const DataOptions& data, ThreadPool& pool,
             const PredictOptions& options, const PredictProgress& progress)
      : networks_(networks), data_(data), pool_(pool), options_(options), progress_(progress), preprocess_(data) {
    options_.window.window = common_window(networks, options.window.window);
    data_.on_bad_case = "fail";
    // Measured here, they would be those of each case alone.
    VOX_CHECK(!preprocess_.zscore_over_dataset() || !preprocess_.known_statistics().empty(),
              "data.preprocess: zscore with scope: dataset goes by the mean and deviation of the training cases, which "
              "these weights came without; give them, as {name: zscore, scope: dataset, mean: [90.5], std: [40.2]}");
  }

  // Whether its files can be opened; where bad cases are left out, says which one is.
  bool can_be_read(const Case& item) const {
    if (!options_.leaves_out_bad_cases) return true;
    try {
      open_case(item, data_, preprocess_);
      return true;
    } catch (const Error& error) {
      return leave_out(item, error);
    }
  }

  Planned plan(Case item) const {
    if (std::string mask = mask_file(options_.mask, item.id); !mask.empty()) item.mask = std::move(mask);
    Planned planned{.item = item, .units = open_case(item, data_, preprocess_), .fingerprint = {}, .path = {}};
    const std::vector<Unit>& images = planned.units.images;
    VOX_CHECK(static_cast<int64_t>(images.size()) == options_.input_channels, "the network takes ",
              options_.input_channels, " channels but the input ", item.images.front(), " has ", images.size(),
              "; write the channels of a case as a.tif,b.tif");
    ContentHash hash;
    hash.add(options_.fingerprint).add(item.id);
    for (const Unit& image : images) hash.add(image.key);
    if (planned.units.mask) hash.add(planned.units.mask->key);
    planned.fingerprint = hash.hex();
    planned.path = prediction_file(options_, item.id);
    require_other_file(options_, item);
    const WindowSource shape{.extent = images.front().stored.extent, .channels = options_.input_channels};
    planned.blending = blending_bytes(shape, options_.window, options_.output_channels);
    planned.input = whole_input_bytes(planned.units);
    const int64_t slabs = slab_input_bytes(planned.units, preprocess_, options_.window.window.z);
    const bool too_large = planned.blending + planned.input > options_.memory_bytes && slabs < planned.input;
    planned.in_slabs = too_large && can_read_in_slabs(planned.units, preprocess_);
    if (planned.in_slabs) planned.input = slabs;
    planned.whole = output_of(planned).whole_volume_bytes();
    require_memory(planned);
    return planned;
  }

  bool run(const Planned& planned) const {  // false where it is left out
    if (is_finished(planned.path, planned.fingerprint)) {
      say(concat(planned.path.string(), " is there already, from an earlier run of this command"));
    } else {
      try {
        predict(planned);
      } catch (const Unreadable& error) {
        if (!options_.leaves_out_bad_cases) throw;
        return leave_out(planned.item, error);
      }
    }
    if (progress_.written) progress_.written(planned.item.id, planned.path);
    return true;
  }

 private:
  CaseOutput output_of(const Planned& planned) const {
    const Unit& first = planned.units.images.front();
    return {planned.path, first.raw, first.stored.extent, options_.output_channels, options_.output};
  }

  void require_memory(const Planned& planned) const {
    const int64_t least = std::max(planned.blending + planned.input, planned.whole);
    const double least_gb = std::ceil(static_cast<double>(least) / kGiB * 1000) / 1000;
    VOX_CHECK(least <= options_.memory_bytes, "case ", planned.item.id, " (", planned.item.images.front(),
              "): inference.memory_gb is ", static_cast<double>(options_.memory_bytes) / kGiB, ", but ",
              planned.units.images.front().stored.extent, " voxels by windows of ", options_.window.window, " need ",
              least_gb, planned.whole == least ? ", because post-processing and another grid work on the whole" : "",
              "; set inference.memory_gb=", least_gb, " or more");
  }

  void predict(const Planned& planned) const {
    const CaseOutput output = output_of(planned);
    PartFile part(planned.path, planned.fingerprint, output.part_info());
    if (part.slices_set_aside() > 0)
      say(concat("case ", planned.item.id, " starts afresh: ", part.slices_set_aside(),
                 " slices of an earlier command had other weights, settings or input"));
    if (part.slices_done() > 0)
      say(concat("case ", planned.item.id, " goes on at slice ", part.slices_done(), " of ",
                 output.part_info().extent.z));
    if (part.slices_done() < output.part_info().extent.z) predict_slices(planned, output, part);
    output.finish(part, &pool_);
    part.finish();
  }

  CaseInput input_of_case(const Planned& planned) const {
    if (planned.in_slabs) {
      // Freed blocks from here on go back to the system at once: kept for reuse, they grew by 70 MiB beside a bound of
      // 36 MiB (1024x256x256 by windows of 16x64x64). It costs time, so only where memory is short.
      mallopt(M_MMAP_THRESHOLD, 1 << 20);
      return input_in_slabs(planned.units, planned.item, preprocess_, options_.window.window.z, pool_);
    }
    DataOptions data = data_;
    data.cache_gb = static_cast<double>(options_.memory_bytes - planned.blending) / kGiB;
    Dataset alone;
    alone.cases.push_back(planned.item);
    alone.test.push_back(0);
    return input_of(std::make_shared<Store>(alone, data, pool_), 0);
  }

  void predict_slices(const Planned& planned, const CaseOutput& output, PartFile& part) const {
    CaseInput input = read_input([&] { return input_of_case(planned); });
    input.image = [read = input.image](int64_t channel, const Box3& box) {
      return read_input([&] { return read(channel, box); });
    };
    if (input.mask) input.mask = [read = input.mask](const Box3& box) { return read_input([&] { return read(box); }); };
    const Extent3& window = options_.window.window;
    WindowSource source = case_source(input, window, outside_of(data_));
    source.skip_below = options_.skip_below;
    skip_outside_mask(source, input, window, options_.mask);
    SlabRun run{.first_slice = part.slices_done(), .write = {}};
    run.write = [&](const Slab& slab) {
      require_numbers(slab, planned);
      part.write(slab.z_begin, slab.z_end, output.encode(slab).data());
    };
    Clock::time_point marked = Clock::now();
    double mark_s = 0;  // what the last mark took; the next waits until that is little beside the computation
    run.written = [&](int64_t slices) {
      if (seconds_since(marked) < 20 * mark_s) return;
      const Clock::time_point begin = Clock::now();
      part.mark_done(slices);
      mark_s = seconds_since(begin);
      marked = Clock::now();
    };
    run.progress = [&](int64_t done, int64_t total) {
      if (progress_.window) progress_.window(planned.item.id, done, total);
    };
    predict_slabs(networks_, source, options_.window, run);
    part.mark_done(part.info().extent.z);
  }

  bool leave_out(const Case& item, const Error& error) const {
    say(concat("case ", item.id, " is left out, as data.on_bad_case says: ", error.what()));
    return false;
  }
  void say(const std::string& line) const {
    if (progress_.say) progress_.say(line);
  }

  const std::vector<Network*>& networks_;
  DataOptions data_;
  ThreadPool& pool_;
  PredictOptions options_;
  const PredictProgress& progress_;
  const Preprocess preprocess_;
};

std::vector<std::filesystem::path> paths_of(const std::vector<Planned>& all) {
  std::vector<std::filesystem::path> paths;
  for (const Planned& planned : all) paths.push_back(planned.path);
  return paths;
}

void submit(const std::vector<Planned>& all, const PredictOptions& options, const PredictProgress& progress) {
  std::vector<std::filesystem::path> files;
  for (const Planned& planned : all) {
    files.push_back(planned.path);
    if (options.submission != Submission::kOpenKbp) continue;
    files.back() = options.folder / (planned.item.id + ".csv");
    write_dose_csv(files.back(), planned.path, file_of_volume(planned.item.images.front()).string());
  }
  const std::filesystem::path zip = write_submission(options.folder, files);
  if (progress.say) progress.say(concat("wrote ", zip.string()));
}

// Datasets of one file of which neither holds the other.
bool lie_apart(const std::string& written, const std::string& read) {
  const auto as_folder = [](const std::string& dataset) {
    const size_t first = dataset.find_first_not_of('/');
    return first == std::string::npos ? "" : dataset.substr(first, dataset.find_last_not_of('/') + 1 - first) + "/";
  };
  const std::string ours = as_folder(written), theirs = as_folder(read);
  return !ours.starts_with(theirs) && !theirs.starts_with(ours);
}

}  // namespace

void require_mirrorable(const LossOptions& loss) {
  for (const LossTerm& term : loss.terms) {
    const std::string kind = loss.kind_of_target(term.target);
    VOX_CHECK(kind != "flow" && kind != "affinity", "the channels of the target ", term.target,
              " tell directions, so outputs of mirrored input cannot be averaged with the others; set inference.tta to "
              "none and leave --tta out");
  }
}

SlidingWindowOptions window_options(const Options& options) {
  const InferenceOptions& inference = options.inference;
  if (augment_from_name(inference.tta) != Augment::kNone) require_mirrorable(options.loss);
  Extent3 window = inference.window;
  for (int axis = 0; axis < 3; ++axis)
    if (window[axis] == 0) window[axis] = options.data.patch_size[axis];  // auto, along any of them
  for (int axis = 0; axis < 3; ++axis)
    VOX_CHECK(2 * inference.shift[axis] <= window[axis], "inference.shift is ", inference.shift, ", but the window is ",
              window, "; more than half of it along an axis would leave gaps");
  return {.window = window,
          .overlap = inference.overlap,
          .blend = blend_from_name(inference.blend),
          .batch_size = std::max<int64_t>(1, inference.batch_size),
          .augment = augment_from_name(inference.tta),
          .mirroring = mirroring_of({&options.augmentation}),
          .shift = inference.shift};
}

std::filesystem::path prediction_file(const PredictOptions& options, const std::string& case_id) {
  return options.folder / (case_id + "." + options.output.format);
}

void require_other_file(const PredictOptions& options, const Case& item) {
  const std::optional<VolumeName> written = existing_volume(prediction_file(options, item.id).string());
  if (!written) return;
  std::vector<std::string> read = item.images;
  for (const std::string& name : {item.label, item.mask})
    if (!name.empty()) read.push_back(name);
  for (const std::string& name : read) {
    const std::optional<VolumeName> known = existing_volume(name);
    std::error_code ignored;
    VOX_CHECK(!known || !std::filesystem::equivalent(written->path, known->path, ignored) ||
                  lie_apart(written->dataset, known->dataset),
              "the prediction of case ", item.id, " would replace ", name,
              ", which it is made from or judged by; choose another --output");
  }
}

void predict_cases(const std::vector<Network*>& networks, const Dataset& dataset, const DataOptions& data,
                   ThreadPool& pool, const PredictOptions& options, const PredictProgress& progress) {
  require_submittable(options.submission, options.output, options.output_channels);
  const Prediction prediction(networks, data, pool, options, progress);
  std::vector<Planned> all;  // a wrong input is found before the first is computed
  for (const Case& item : dataset.cases)
    if (prediction.can_be_read(item)) all.push_back(prediction.plan(item));
  VOX_CHECK(!all.empty(), "none of the ", dataset.cases.size(), " cases can be read");
  if (options.submission == Submission::kOpenKbp)
    for (const Planned& planned : all) require_patient(file_of_volume(planned.item.images.front()));
  if (options.submission != Submission::kNone) require_names_apart(paths_of(all));
  const size_t planned_cases = all.size();
  std::erase_if(all, [&](const Planned& planned) { return !prediction.run(planned); });
  VOX_CHECK(!all.empty(), "none of the ", planned_cases, " cases can be read");
  if (options.submission != Submission::kNone) submit(all, options, progress);
  for (const Planned& planned : all) forget_finished(planned.path);
}

}  // namespace vox
