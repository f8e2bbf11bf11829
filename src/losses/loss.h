// Losses: terms on a registry, and the weighted sum of those that a recipe names. All arithmetic is float32, nothing
// is read back to the host.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "config/config.h"
#include "losses/fused_term.h"

namespace vox {

struct Targets {
  at::Tensor label;                         // [N, 1, Z, Y, X], integer classes; [N, C, Z, Y, X] floating for regression
  at::Tensor mask;                          // [N, 1, Z, Y, X], non-zero where a voxel counts; undefined: everywhere
  at::Tensor image;                         // the network's input, for losses that look at it; may be undefined
  std::map<std::string, at::Tensor> extra;  // target.* by the name after the dot; unknown: int8 below 0, NaN
};

// What a term sees: its channels of one output at that output's resolution.
struct LossInput {
  at::Tensor logits;     // [N, C, Z, Y, X] float32
  at::Tensor target;     // classes: one-hot [N, C, ...] float32, or [N, 1, ...] for one channel; values as they are
  bool one_hot = false;  // the target holds 0 and 1 only
  at::Tensor classes;    // [N, Z, Y, X] int64, ignored voxels 0; undefined for one channel and for values
  at::Tensor valid;      // [N, 1 or C, ...] float32 of 0 and 1; undefined: every voxel counts
  at::Tensor known;      // the same of what the target knows, whatever counts otherwise; it is 0 elsewhere
  at::Tensor image;      // may be undefined
};

// What a term with a delay finds out about a prediction, on threads of its own while the training goes on.
class Findings {
 public:
  virtual ~Findings() = default;
  virtual at::Tensor value(const LossInput& input) = 0;  // of a later prediction of the same batch; waits
  virtual std::vector<at::Tensor> state() = 0;           // for a checkpoint, on the CPU; waits
};

class Loss {
 public:
  virtual ~Loss() = default;
  virtual at::Tensor compute(const LossInput& input) const = 0;  // a scalar
  // Whether the value over a batch is other than the mean over its samples: the micro-batch then matters.
  // `partial`: voxels may be ignored or masked.
  virtual bool batch_wise(bool partial) const = 0;
  // How the kernels that compute several terms in one pass see it; nullopt: they do not.
  virtual std::optional<FusedTerm> fused() const { return std::nullopt; }
  // Whether it looks at values on the host, which a captured step cannot.
  virtual bool reads_back() const { return false; }
  // Whether it looks at the values of the image.
  virtual bool reads_image() const { return false; }
  // Whether it compares the hyperbolic tangent of the output, not the output itself.
  virtual bool takes_tanh() const { return false; }

  // Steps between looking at a batch and applying the term to a second forward pass of it; 0: compute() does all.
  virtual int64_t delay() const { return 0; }
  virtual std::unique_ptr<Findings> look_at(const LossInput& input) const;
  virtual std::unique_ptr<Findings> restored(const std::vector<at::Tensor>& state) const;
  // Seconds for which the training waited for this term's threads since the last call; nullopt: it has none.
  virtual std::optional<double> take_wait() const { return std::nullopt; }
};

// Numbers that a loss multiplies with, brought to a device once: a copy in every step would wait there.
class Constants {
 public:
  explicit Constants(std::vector<double> values = {}) : values_(std::move(values)) {}
  bool empty() const { return values_.empty(); }
  const std::vector<double>& values() const { return values_; }
  const at::Tensor& like(const at::Tensor& other) const;  // [count], of that type and device

 private:
  std::vector<double> values_;
  mutable at::Tensor made_;
};

// Mean over the voxels that count, of all samples and channels together; 0 where none does.
at::Tensor mean_of_valid(const at::Tensor& values, const at::Tensor& valid);

struct LossContext {
  int64_t out_channels = 1;
};

struct LossEntry {
  std::string name, help;
  bool regression = false;          // compares values, not classes
  bool uses_valid = true;           // voxels that do not count change nothing
  bool needs_classes = false;       // of which a voxel has one
  bool softmax = true;              // of classes; else each has a sigmoid of its own
  std::string default_target = "";  // empty: the label
  int64_t default_every = 1;
  std::function<std::unique_ptr<Loss>(const Tree& params, const LossContext& context)> make;
  std::vector<OptionRow> (*options)() = nullptr;  // of its own
};
const std::vector<LossEntry>& all_losses();
const LossEntry& find_loss(const std::string& name);  // Error names what there is
int64_t steps_between(const LossTerm& term);          // its `every`, or what its loss finds right

struct LossResult {
  at::Tensor total;  // scalar, float32, on the device of the logits
  // Unweighted, detached, of the full-resolution-first weighted heads; nullopt: not due at this step.
  std::vector<std::pair<std::string, std::optional<at::Tensor>>> terms;
};

// A term with a delay for one output of one micro-batch, between the step that begins it and the one that applies it.
struct LateTerm {
  size_t term = 0, head = 0;
  std::unique_ptr<Findings> findings;
};

class LossSet {
 public:
  enum class Part { kAtOnce, kLate };             // terms without and with a delay
  enum class Delays { kHonoured, kDisregarded };  // disregarded: late terms are computed at once, as a validation does
  LossSet(const LossOptions& options, const DataOptions& data, int64_t out_channels,
          const std::vector<HeadOptions>& heads = {});
  ~LossSet();

  // Logits finest first. A term is due where step >= start_step and (step - start_step) % every == 0; its weight is
  // multiplied by `every` then, so that its expectation is what it would be at every step.
  LossResult compute(const std::vector<at::Tensor>& logits, const Targets& targets, int64_t step,
                     Delays delays = Delays::kHonoured) const;
  std::vector<std::string> term_names() const;

  // What a term about the label sees of an output: of several the one with classes, then the one with most channels.
  struct Compared {
    at::Tensor logits;  // undefined: no term is about the label
    bool foreground = false;
    std::vector<int64_t> values{};  // as in LabelChannels
    bool logistic = true;           // outputs are logits, not the values 0 and 1 themselves
  };
  Compared compared_with_label(const at::Tensor& logits) const;
  struct LabelChannels {
    std::vector<int64_t> channels;  // of the whole output; empty: no term is about the label
    bool foreground = false;
    bool softmax = false;  // a term takes one over them
    // Of a one_hot target: the label value of each channel, ascending. Where 0 is none of them, a voxel is background
    // if no channel is likely. Empty: each channel is the class of its place.
    std::vector<int64_t> values{};
  };
  LabelChannels label_channels() const;
  std::vector<int64_t> value_channels() const;  // that a term compares with values: distances, flows
  std::vector<int64_t> tanh_channels() const;   // of these, those whose hyperbolic tangent it compares
  // That a term compares with a target of this kind: "boundary", "affinity"; empty: none does.
  std::vector<int64_t> channels_against(const std::string& kind) const;
  // Error where labels of these values have a class that is beyond the channels of a term.
  void require_channels(const std::vector<int64_t>& label_values) const;
  // Error where a term with one channel, which tells 0 from everything else, meets labels of several values but 0.
  void require_background(std::vector<int64_t> label_values) const;

  bool due(size_t term, int64_t step, Part part = Part::kAtOnce) const;  // those of the part; late: applied then
  // Steps before `end` at which, together, every term that computes at once and starts by then is due, each with as
  // many others as ever.
  std::vector<int64_t> fullest_steps(int64_t end) const;
  bool reads_back(int64_t step) const;  // any term that is due or begins
  // Whether output number `head` of so many gets a gradient at this step.
  bool reaches(size_t head, size_t heads, int64_t step, Part part = Part::kAtOnce) const;
  std::optional<double> take_wait(size_t term) const;  // Loss::take_wait

  // What compute() and apply() spend on each term, disregarded delays left out: the forward computation, micro-batches
  // and outputs together. Terms that a GPU computes in one pass have equal shares of it.
  void time_terms(const at::Device& device);  // from now on; waits too
  // On a CPU: since it was last asked; nullopt: nothing.
  std::optional<double> take_seconds(size_t term) const;
  // On a GPU: int64 [terms] that live there and that its kernels add to, in captured graphs too; undefined elsewhere.
  at::Tensor term_nanoseconds() const;

  int64_t delay(size_t term) const;
  // Late terms begin where others would be due, and are applied `delay` steps later to the logits of the same batch.
  bool begins(int64_t step) const;
  std::vector<LateTerm> begin(const std::vector<at::Tensor>& logits, const Targets& targets, int64_t step) const;
  // Of those that are due; they are gone from `terms` then.
  LossResult apply(std::vector<LateTerm>& terms, const std::vector<at::Tensor>& logits, const Targets& targets,
                   int64_t step) const;
  // The first step whose batch is not done with when `step` is about to run; none: that step itself.
  int64_t first_unfinished(int64_t step) const;
  LateTerm restored(size_t term, size_t head, const std::vector<at::Tensor>& state) const;

  // Any term whose value over a batch is not the mean over its samples, so that the micro-batch matters.
  bool batch_wise(bool masked = false) const;  // masked: cases have masks of their own

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The targets that the terms of a recipe name, beside the label: what the pipeline must make.
std::vector<TargetOptions> targets_of(const LossOptions& options);

// The terms of a recipe that names none: dice + bce (one channel), dice + cross_entropy, or mae for regression.
std::vector<LossTerm> default_terms(const DataOptions& data, int64_t out_channels);

}  // namespace vox
