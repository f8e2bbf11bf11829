#include "train/validate.h"

#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/text.h"
#include "infer/predict.h"
#include "losses/loss.h"
#include "metrics/confusion.h"
#include "nets/network.h"
#include "train/state.h"
#include "train/step.h"

namespace vox {
namespace {

constexpr int64_t kIgnored = 32767;                       // in a reference made here; classes are smaller
constexpr uint64_t kValidationSeed = 0x76616c6964617465;  // patches that no training sample shares

struct Judged {           // a batch or a volume, on the CPU
  at::Tensor prediction;  // int16 classes
  at::Tensor reference;   // int16 classes, kIgnored where a voxel does not count
};

// A whole volume is looked at in slabs: what is made of a voxel on the way is larger than the voxel.
std::vector<at::Tensor> slabs_of(const at::Tensor& volume) {
  constexpr int64_t kSlices = 32;
  return volume.split(kSlices, /*dim=*/2);
}

class Judge {
 public:
  Judge(const Options& options, const std::vector<std::string>& terms) : options_(options) {
    for (const std::string& term : terms) terms_.emplace_back(term, MeanOf{});
  }

  void add_losses(const LossResult& loss) {
    loss_.add(loss.total.item<double>());
    for (size_t i = 0; i < terms_.size(); ++i)
      if (loss.terms[i].second) terms_[i].second.add(loss.terms[i].second->item<double>());
  }
  // What a network without finite outputs would score, mostly an empty volume's 1, says nothing of it.
  void look_at(const at::Tensor& logits) {
    for (const at::Tensor& slab : slabs_of(logits))
      finite_ = finite_ && std::isfinite(slab.sum(at::kDouble).item<double>());
  }
  void add_error(const at::Tensor& prediction, const Targets& targets) {
    at::Tensor error = (prediction - targets.label.to(prediction.options())).abs();
    if (targets.mask.defined()) error = error.masked_select(targets.mask.ne(0));
    if (error.numel() > 0) error_.add(error.mean().item<double>());
  }
  void count(const at::Tensor& reference) { judged_ += reference.ne(kIgnored).sum().item<int64_t>(); }
  void add(const Judged& judged, const std::string& where) {
    const at::Tensor prediction = judged.prediction.contiguous(), reference = judged.reference.contiguous();
    count(reference);
    const auto labels = [](const at::Tensor& classes, const std::string& name) {
      return LabelVoxels{.data = classes.const_data_ptr<int16_t>(), .dtype = DType::kInt16, .where = name};
    };
    count_confusion(counts_, labels(prediction, where + " (prediction)"), labels(reference, where), prediction.numel(),
                    kIgnored);
  }
  // Volumes are scored one by one; their mean is what counts.
  void end_volume() {
    if (judged_ > 0) dice_.add(counts_.dice());
    if (judged_ > 0) iou_.add(counts_.iou());
    counts_ = {};
    judged_ = 0;
  }

  // Every score of such a validation, in order; absent where nothing was judged by it.
  std::vector<std::pair<std::string, std::optional<double>>> all_scores() const {
    std::vector<std::pair<std::string, std::optional<double>>> all;
    const bool patches = options_.validation.mode == "patches";  // pooled; no loss of a whole volume is computed
    const bool values = options_.data.target == "regression";
    const auto counted = [&](const std::optional<double>& score) {
      return values || judged_ > 0 ? score : std::nullopt;
    };
    if (patches) all.emplace_back("loss", counted(loss_.mean()));
    for (const auto& [name, mean] : terms_)
      if (patches) all.emplace_back("loss." + name, counted(mean.mean()));
    if (!options_.loss.looks_at_label()) return all;  // nor does a score
    if (values) {
      all.emplace_back("mae", error_.mean());
      return all;
    }
    all.emplace_back("dice", patches ? counted(counts_.dice()) : dice_.mean());
    all.emplace_back("iou", patches ? counted(counts_.iou()) : iou_.mean());
    if (patches) all.emplace_back("precision", counted(counts_.precision()));
    if (patches) all.emplace_back("recall", counted(counts_.recall()));
    return all;
  }
  std::vector<std::pair<std::string, double>> scores() const {
    std::vector<std::pair<std::string, double>> found;
    for (const auto& [name, value] : all_scores())
      if (value && finite_) found.emplace_back(name, *value);
    return found;
  }

 private:
  const Options& options_;
  ConfusionCounts counts_;
  int64_t judged_ = 0;  // voxels that counted
  bool finite_ = true;
  MeanOf loss_, error_, dice_, iou_;
  std::vector<std::pair<std::string, MeanOf>> terms_;
};

// No channel is the background's: a voxel is where none of them is likely.
bool implies_background(const LossSet::Compared& seen) {
  return seen.logits.size(1) == 1 || (!seen.values.empty() && seen.values.front() != 0);
}

at::Tensor classes_of(const LossSet::Compared& seen, double threshold) {
  const bool implied = implies_background(seen);
  std::vector<at::Tensor> slabs;
  for (const at::Tensor& logits : slabs_of(seen.logits)) {
    const auto [likeliest, channel] = logits.max(1, /*keepdim=*/true);
    const at::Tensor chance = seen.logistic ? likeliest.sigmoid() : likeliest;
    const at::Tensor classes = implied ? (channel + 1) * chance.gt(threshold) : channel;
    slabs.push_back(classes.to(at::kCPU, at::kShort));
  }
  return at::cat(slabs, 2);
}

// Of a one_hot target: which of its classes a voxel has, counted as classes_of counts them.
at::Tensor places_of(const at::Tensor& label, const LossSet::Compared& seen) {
  at::Tensor places = at::zeros_like(label, at::kShort);
  const int64_t first = implies_background(seen) ? 1 : 0;
  for (size_t i = 0; i < seen.values.size(); ++i)
    places.masked_fill_(label.eq(seen.values[i]), static_cast<int64_t>(i) + first);
  return places;
}

// Classes are the places of the values, as in the losses.
at::Tensor places_of(const at::Tensor& label, const DataOptions& data) {
  std::vector<int64_t> values = data.labels;
  std::erase(values, data.ignore_label);
  std::sort(values.begin(), values.end());
  std::vector<at::Tensor> slabs;
  for (const at::Tensor& slab : slabs_of(label))
    slabs.push_back(at::bucketize(slab.to(at::kLong), at::tensor(values, at::kLong)).to(at::kShort));
  return at::cat(slabs, 2);
}

at::Tensor reference_of(const Targets& targets, const LossSet::Compared& seen, const DataOptions& data) {
  const at::Tensor label = targets.label.cpu();
  const bool one_hot = !seen.values.empty();
  const bool foreground = !seen.logits.defined() || seen.foreground || seen.logits.size(1) == 1;
  at::Tensor reference = (foreground ? label.ne(0) : label).to(at::kShort, false, /*copy=*/true);
  if (one_hot) {
    reference = places_of(label, seen);
  } else if (!foreground && !data.labels.empty()) {
    reference = places_of(label, data);
  }
  if (data.ignore_label >= 0) reference.masked_fill_(label.eq(data.ignore_label), kIgnored);
  if (targets.mask.defined()) reference.masked_fill_(targets.mask.cpu().eq(0), kIgnored);
  return reference;
}

std::vector<uint8_t> mid_slice(const at::Tensor& volume) {  // of [Z, Y, X], as bytes; what is ignored is 255
  const at::Tensor slice = volume.select(0, volume.size(0) / 2).clamp_max(255).to(at::kCPU, at::kByte).contiguous();
  return {slice.const_data_ptr<uint8_t>(), slice.const_data_ptr<uint8_t>() + slice.numel()};
}

at::Tensor stretched(const at::Tensor& image) {  // to 0..255, of the middle slice's own range
  const at::Tensor slice = image.select(0, image.size(0) / 2).to(at::kCPU, at::kFloat);
  const at::Tensor low = slice.min(), range = (slice.max() - low).clamp_min(1e-12);
  return ((image.to(at::kCPU, at::kFloat) - low) / range * 255).clamp(0, 255);
}

SliceStrip strip_of(const at::Tensor& image, const Judged& judged, const std::string& id) {
  SliceStrip strip{.case_id = id, .height = image.size(1), .width = image.size(2)};
  strip.input = mid_slice(stretched(image));
  strip.label = mid_slice(judged.reference[0][0]);
  strip.prediction = mid_slice(judged.prediction[0][0]);
  return strip;
}

SliceStrip strip_of_image(const at::Tensor& image, const std::string& id) {
  SliceStrip strip{.case_id = id, .height = image.size(1), .width = image.size(2)};
  strip.input = mid_slice(stretched(image));
  return strip;
}

std::string case_id(const Store& store, int64_t index) {
  return store.dataset().cases[static_cast<size_t>(index)].id;
}

at::Tensor logits_of(const at::Tensor& images, const ValidationRequest& request) {
  if (request.micro_batch == 0 || images.size(0) <= request.micro_batch) return request.network.forward(images).front();
  std::vector<at::Tensor> parts;
  for (const at::Tensor& part : images.split(request.micro_batch))
    parts.push_back(request.network.forward(part).front());
  return at::cat(parts);
}

ValidationResult validate_patches(const ValidationRequest& request) {
  const Options& options = request.options;
  const int64_t batch_size = std::min(options.data.batch_size, std::max<int64_t>(1, options.validation.patches));
  const int64_t batches = (options.validation.patches + batch_size - 1) / batch_size;
  Pipeline pipeline(request.store, options.data, options.augmentation,
                    {.seed = kValidationSeed,
                     .batch_size = batch_size,
                     .batches = batches,
                     .threads = request.data_threads,
                     .prefetch = 2,
                     .split = Split::kValidation,
                     .augment = false,
                     .targets = targets_of(options.loss)});
  Judge judge(options, request.loss.term_names());
  ValidationResult result;
  Batch host;
  for (int64_t done = 0; pipeline.next(host); ++done) {
    const DeviceBatch batch = to_device(host, request.network.parameters().device());
    const at::Tensor logits = logits_of(batch.image, request);
    judge.look_at(logits);
    judge.add_losses(request.loss.compute({logits}, batch.targets, 0, LossSet::Delays::kDisregarded));
    const std::string id = case_id(*request.store, batch.samples.front().case_index);
    const LossSet::Compared seen = request.loss.compared_with_label(logits);
    const bool values = options.data.target == "regression";
    if (values && seen.logits.defined()) judge.add_error(seen.logits, batch.targets);
    if (!values && !seen.logits.defined()) judge.count(reference_of(batch.targets, seen, options.data));
    if (values || !seen.logits.defined()) {
      if (request.images && done == 0) result.strips.push_back(strip_of_image(batch.image[0][0], id));
    } else {
      const Judged judged{classes_of(seen, options.inference.threshold),
                          reference_of(batch.targets, seen, options.data)};
      judge.add(judged, "case " + id);
      if (request.images && done == 0) result.strips.push_back(strip_of(batch.image[0][0], judged, id));
    }
    if (request.progress) request.progress(done + 1, batches);
    if (request.between) request.between();
  }
  result.scores = judge.scores();
  return result;
}

Targets whole_label(Store& store, int64_t index, const DataOptions& data) {
  const Extent3 extent = store.facts(index).extent;
  const auto fetch = [&](Role role, at::ScalarType type) {
    const Block block = store.fetch(index, role, 0, whole(extent));
    const VolumeView& view = block.view;
    at::Tensor values = at::empty({1, 1, extent.z, extent.y, extent.x}, at::kFloat);
    float* out = values.data_ptr<float>();
    with_type(view.dtype, [&](auto sample) {
      const auto* voxels = reinterpret_cast<const decltype(sample)*>(view.data);
      for (int64_t z = 0; z < extent.z; ++z)
        for (int64_t y = 0; y < extent.y; ++y)
          for (int64_t x = 0; x < extent.x; ++x)
            *out++ = static_cast<float>(
                static_cast<double>(voxels[z * view.stride_z + y * view.stride_y + x]) * view.scale + view.offset);
    });
    return values.to(type);
  };
  const Case& one = store.dataset().cases[static_cast<size_t>(index)];
  Targets targets;
  targets.label = fetch(Role::kLabel, data.target == "regression" ? at::kFloat : at::kByte);
  if (!one.mask.empty()) targets.mask = fetch(Role::kMask, at::kByte);
  return targets;
}

at::Tensor whole_image(const std::shared_ptr<Store>& store, int64_t index) {
  const Extent3 extent = store->facts(index).extent;
  at::Tensor image = at::empty({extent.z, extent.y, extent.x});
  case_source(input_of(store, index), extent, {}).read({0, 0, 0}, 0, image.data_ptr<float>());
  return image;
}

ValidationResult validate_volumes(const ValidationRequest& request) {
  const Options& options = request.options;
  SlidingWindowOptions window = window_options(options);
  window.window = request.network.round_up(window.window);
  const auto between = [&](int64_t, int64_t) {
    if (request.between) request.between();
  };
  Judge judge(options, {});
  ValidationResult result;
  const std::vector<int64_t>& cases = request.store->dataset().validation;
  for (size_t i = 0; i < cases.size(); ++i) {
    const WindowSource source = case_source(input_of(request.store, cases[i]), window.window, outside_of(options.data));
    const Logits logits = predict_logits(request.network, source, window, between);
    const Extent3 extent = logits.extent;
    const at::Tensor values = at::from_blob(const_cast<std::byte*>(logits.data.data()),
                                            {1, logits.channels, extent.z, extent.y, extent.x}, at::kFloat);
    judge.look_at(values);
    const Targets targets = whole_label(*request.store, cases[i], options.data);
    const std::string id = case_id(*request.store, cases[i]);
    const LossSet::Compared seen = request.loss.compared_with_label(values);
    if (options.data.target == "regression" && seen.logits.defined()) {
      judge.add_error(seen.logits, targets);
    } else if (seen.logits.defined()) {
      const Judged judged{classes_of(seen, options.inference.threshold), reference_of(targets, seen, options.data)};
      judge.add(judged, "case " + id);
      judge.end_volume();
      if (request.images && i == 0) result.strips.push_back(strip_of(whole_image(request.store, cases[i]), judged, id));
    }
    if (request.progress) request.progress(static_cast<int64_t>(i) + 1, static_cast<int64_t>(cases.size()));
  }
  result.scores = judge.scores();
  return result;
}

Error not_measured(const std::string& metric, const std::vector<std::string>& known) {
  if (known.empty())
    return Error(concat("validation.metric is \"", metric,
                        "\", but no loss term is compared with the label, and sliding windows have no loss; set "
                        "validation.mode to patches and the metric to loss"));
  return Error(concat("validation.metric is \"", metric,
                      "\", which this run does not measure; known here: ", join(known, ", ")));
}

}  // namespace

std::optional<double> ValidationResult::at(const std::string& metric) const {
  for (const auto& [name, value] : scores)
    if (name == metric) return value;
  return std::nullopt;
}

LossOptions loss_of_validation(LossOptions loss) {
  for (LossTerm& term : loss.terms) {
    term.every = 1;
    term.start_step = 0;
    std::erase_if(term.params.members, [](const auto& option) { return option.first == "delay"; });  // below `every`
  }
  return loss;
}

void check_metric(const Options& options, const std::vector<std::string>& terms) {
  std::vector<std::string> known;
  for (const auto& [name, value] : Judge(options, terms).all_scores()) known.push_back(name);
  if (std::find(known.begin(), known.end(), options.validation.metric) == known.end())
    throw not_measured(options.validation.metric, known);
}

ValidationResult validate(const ValidationRequest& request) {
  const at::NoGradGuard no_grad;
  return request.options.validation.mode == "sliding_window" ? validate_volumes(request) : validate_patches(request);
}

std::string without_score(const std::string& metric, int64_t step) {
  return concat("step ", step, ": this validation has no ", metric,
                ": the outputs are not finite, or no voxel counts; it cannot be the best");
}

bool higher_is_better(const ValidationOptions& options) {
  if (options.better != "auto") return options.better == "higher";
  return !options.metric.starts_with("loss") && options.metric != "mae";
}

}  // namespace vox
