// What a LossSet is made of, for the files that implement it.
#pragma once

#include "losses/loss.h"

namespace vox {

struct LossSet::Impl {
  struct View {  // which channels, against what
    int64_t first = 0, count = 1;
    std::vector<int64_t> chosen;  // of those; empty: all
    std::string target;           // empty: the label
    bool operator==(const View&) const = default;
    int64_t channels() const { return chosen.empty() ? count : static_cast<int64_t>(chosen.size()); }
    at::Tensor of(const at::Tensor& logits) const;
    std::vector<int64_t> numbers() const;  // of its channels
  };
  struct Term {
    std::string label;  // the name, numbered where it comes twice
    LossTerm options;
    size_t view = 0;
    std::unique_ptr<Loss> loss;
    const char* span;               // loss.<label>
    std::optional<double> seconds;  // LossSet::take_seconds
  };

  LossOptions options;
  bool regression = false, partial = false;
  int64_t out_channels = 1, ignore_label = -1;
  Constants class_values;  // label value of each class, where that is not 0, 1, 2, ...
  std::vector<HeadOptions> heads;
  std::vector<View> views;
  std::vector<Term> terms;
  at::Tensor clock;  // ops::take_lap, a slot for each term; undefined: no GPU, or nobody wants to know

  class Laps {  // through the terms, on a GPU; without a clock they do nothing
   public:
    explicit Laps(const at::Tensor& clock) : clock_(clock) {}
    // What the GPU did since the last lap it did for these terms together; none: for nothing that is timed.
    void take(const std::vector<size_t>& of = {}) const;

   private:
    at::Tensor clock_;
  };

  bool begins(const Term& term, int64_t step) const;  // or, without a delay, is due
  void add_term(const LossTerm& term);
  View view_of(const LossTerm& term, const LossEntry& entry) const;
  bool sees_label(const View& view) const { return !regression && view.target.empty(); }
  bool is_foreground(const Term& term) const;
  const Term* label_term() const;  // of those about the label: classes before foreground, then most channels
  void set_class_values(const DataOptions& data);
  bool takes_softmax(const Term& term) const;
  std::vector<int64_t> class_order_of(const Term& term, std::vector<int64_t>& values) const;
  bool is_batch_wise(const Term& term, bool masked) const;
  std::vector<int64_t> channels_of(const std::function<bool(const Term& term)>& wanted) const;  // that these terms see
  at::Tensor valid_voxels(const Targets& targets) const;
  at::Tensor classes_of(const at::Tensor& label, const at::Tensor& valid, int64_t channels) const;
  bool holds_values(const at::Tensor& target, const View& view) const;
  bool is_averaged(const at::Tensor& target, const View& view) const;
  static bool may_be_unknown(const at::Tensor& target, const View& view);
  bool reads_image() const;  // any term
  LossInput input_for(const at::Tensor& logits, const Targets& targets, const at::Tensor& valid,
                      const View& view) const;
  std::vector<double> head_weights(size_t outputs) const;
  double head_weight(const Term& term, const std::vector<double>& weights, size_t head) const;
  void fuse(const std::vector<at::Tensor>& logits, const Targets& targets, const std::vector<bool>& due,
            const Laps& laps, LossResult& result) const;
};

}  // namespace vox
