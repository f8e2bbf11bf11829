#pragma once

#include <algorithm>

#include "config/visitor.h"

namespace vox {

struct LossTerm {
  std::string name;
  double weight = 1;
  int64_t every = 0;  // 0: what the loss itself finds right, mostly 1
  int64_t start_step = 0;
  std::string head;               // of model.heads; empty: all channels
  std::vector<int64_t> channels;  // of the head; empty: all
  std::string target;             // what it is compared with, one of `voxloom list targets`; empty: the label
  bool deep_supervision = true;   // at the coarser outputs too
  Tree params;                    // what the loss itself understands

  void describe(Visitor& v) {
    v.field("name", name, {.meaning = "Loss, one of `voxloom list losses`; its own options stand beside it"});
    v.field("weight", weight, {.meaning = "Factor of this term in the sum", .min = 0, .max = 1e9});
    v.field("every", every,
            {.meaning = "Compute it every so many steps, scaled to keep its expectation",
             .unit = "steps",
             .min = 1,
             .max = 1e9,
             .named = NamedValue{"auto", 0}});
    v.field("start_step", start_step,
            {.meaning = "First step that has this term", .unit = "steps", .min = 0, .max = 1e15});
    v.field("head", head, {.meaning = "Head of model.heads whose channels it sees; empty is every channel"});
    v.field("channels", channels, {.meaning = "Channels (of that head) it sees; empty is all", .min = 0, .max = 65535});
    v.field("target", target, {.meaning = "What it is compared with, one of `voxloom list targets`; empty: the label"});
    v.field("deep_supervision", deep_supervision, {.meaning = "Take it at the coarser outputs too"});
  }
  bool operator==(const LossTerm&) const = default;
};

struct TargetOptions {  // a target under a name of its own, with options of its kind
  std::string name, kind;
  Tree params;

  void describe(Visitor& v) {
    v.field("name", name, {.meaning = "What loss terms call it"});
    v.field("kind", kind, {.meaning = "One of `voxloom list targets`; its own options stand beside it"});
  }
  bool operator==(const TargetOptions&) const = default;
};

struct LossOptions {
  std::vector<LossTerm> terms;                   // empty: dice + bce (or cross entropy), or mae for regression
  std::vector<TargetOptions> targets;            // only those that need options; the kinds' own names need none
  std::vector<double> deep_supervision_weights;  // empty: 1, 1/2, 1/4, ... normalised

  void describe(Visitor& v) {
    v.list("terms", terms,
           {.meaning = "Terms of the sum; empty is Dice and cross entropy, or mean absolute error for regression"});
    v.list("targets", targets, {.meaning = "Targets with options, under names for loss terms to use"});
    v.field("deep_supervision_weights", deep_supervision_weights,
            {.meaning = "Weight of each output, finest first; empty halves from output to output", .min = 0});
  }
  bool operator==(const LossOptions&) const = default;

  // The kind of the target that terms call so; most have the name of their kind.
  std::string kind_of_target(const std::string& called) const {
    for (const TargetOptions& target : targets)
      if (target.name == called) return target.kind;
    return called;
  }
  // Whether a term's channels tell what the label does: its classes or its foreground, or what a loss makes of it
  // itself.
  bool is_about_label(const LossTerm& term) const {
    const std::string kind = kind_of_target(term.target);
    return kind.empty() || kind == "label" || kind == "foreground" || kind == "one_hot";
  }
  bool looks_at_label() const {  // else no score of classes is to be had
    return terms.empty() ||
           std::any_of(terms.begin(), terms.end(), [&](const LossTerm& term) { return is_about_label(term); });
  }
};

}  // namespace vox
