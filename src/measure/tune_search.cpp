// From the recipe as it is, the change with the best prediction first; a change stays where it is measured to help.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/text.h"
#include "measure/tune_trials.h"

namespace vox {
namespace {

constexpr double kSameLoss = 1e-3;       // relative: rounding in another order of sums
constexpr double kFinalSeconds = 30;     // kept for the comparison at the end
constexpr double kFinalShare = 0.25;     // of a short time
constexpr double kWorthwhile = 0.9;      // of the time a sample takes: what is predicted to bring less can wait
constexpr double kUnknown = 1e12;        // ms: stands for a time that nobody can predict
constexpr double kPlainly = 1.15;        // times as fast
constexpr double kBetterWithMore = 0.5;  // of a trial's time: where its own profile promises less, that comes first

struct Move {
  Changes changes;  // all of them, against the recipe
  std::string name;
  double predicted_ms = 0;  // a sample
  std::optional<double> predicted_step_ms;
  bool same_result = true;
};

struct Node {  // a trial that worked: its own profile says what would help next
  size_t trial = 0;
  Changes changes;
  bool same_result = true;  // as the best so far
};

class Search {
 public:
  explicit Search(TrialRunner& runner) : runner_(runner) {}

  TuneResult run() {
    Trial& start = runner_.run("as it is", {});
    if (!worked(start))
      throw Error(concat("the recipe as it is could not be measured (", name_of(start.verdict), "): ", start.note));
    start.verdict = TrialVerdict::kBaseline;
    runner_.judged(start);
    tried_.insert(Changes{});
    const double final_seconds = std::min(kFinalSeconds, kFinalShare * 60 * runner_.request().minutes);
    while (runner_.seconds_left() > final_seconds + seconds_of_a_trial()) {
      const std::optional<Move> move = next_move();
      if (!move) break;
      tried_.insert(move->changes);
      try_move(*move);
    }
    TuneResult result;
    result.trials = runner_.trials();
    result.batches = tried_batches(runner_, best_);
    result.chosen = words_of(best_);
    for (const std::string& word : result.chosen) result.evidence.push_back(evidence_[word]);
    return result;
  }

 private:
  // As the last one; the first also prepared the data.
  double seconds_of_a_trial() { return runner_.trials().size() > 1 ? runner_.trials().back().seconds : 0; }
  const Trial& best_trial() { return runner_.trials()[best_index_]; }
  bool allowed(const std::string& what) const { return runner_.request().allow.contains(what); }

  // Predictions that promise much, the best first; then what nobody can predict; then the other predictions, and those
  // of a model one of whose promises was not kept. A network that computes all the time is helped by no thread or
  // cache, but may be by another precision.
  std::optional<Move> next_move() {
    std::vector<Move> moves = suggested({.trial = best_index_, .changes = best_});
    for (Move& move : moves)
      if (disappointed_ || move.predicted_ms > kWorthwhile * 1e3 / best_trial().samples_per_s)
        move.predicted_ms += 2 * kUnknown;
    const std::vector<Move> further = suggested_beyond(), more = unpredicted();
    moves.insert(moves.end(), further.begin(), further.end());
    moves.insert(moves.end(), more.begin(), more.end());
    std::erase_if(moves, [&](const Move& move) { return tried_.contains(move.changes); });
    if (moves.empty()) return std::nullopt;
    return *std::min_element(moves.begin(), moves.end(),
                             [](const Move& a, const Move& b) { return a.predicted_ms < b.predicted_ms; });
  }

  // What the profile of a trial suggests and the mathematics allows; how long epochs are and which checkpoints stay is
  // the user's.
  std::vector<Move> suggested(const Node& node) {
    std::vector<Move> moves;
    const Trial& trial = runner_.trials()[node.trial];
    const double samples = trial.samples_per_s * trial.step_ms / 1e3;
    for (const Suggestion& one : trial.suggestions) {
      const bool epochs = std::any_of(one.changes.begin(), one.changes.end(), [](const std::string& change) {
        return change.starts_with("training.iterations_per_epoch") || change.starts_with("training.save_every");
      });
      if (!one.same_result || epochs) continue;
      moves.push_back({.changes = merged(node.changes, one.changes),
                       .name = join(one.changes, " "),
                       .predicted_ms = one.predicted_step_ms / samples,
                       .predicted_step_ms = one.predicted_step_ms,
                       .same_result = node.same_result});
    }
    return moves;
  }

  // Where two things take nearly as long, neither helps without the other: what the profiles of changes that brought
  // nothing by themselves promise, if that is more than the best has.
  std::vector<Move> suggested_beyond() {
    std::vector<Move> moves;
    for (const Node& node : beyond_)
      for (Move& move : suggested(node))
        if (move.predicted_ms < kWorthwhile * 1e3 / best_trial().samples_per_s) moves.push_back(std::move(move));
    return moves;
  }

  // Is it no use to measure this one in turns with the best, because something else now takes all the time?
  bool promises_more(const Node& node) {
    const Trial& trial = runner_.trials()[node.trial];
    if (runner_.over_memory_target(trial) || trial.voxels_per_s > kPlainly * best_trial().voxels_per_s) return false;
    const double now_ms = 1e3 / trial.samples_per_s;
    const std::vector<Move> moves = suggested(node);
    return std::any_of(moves.begin(), moves.end(),
                       [&](const Move& move) { return move.predicted_ms < kBetterWithMore * now_ms; });
  }

  // What no time of another setting tells: graphs where they are off; where the user allows it, what changes the
  // result.
  std::vector<Move> unpredicted() {
    const Options now = runner_.config_with(best_).options;
    std::vector<Move> moves;
    const auto offer = [&](const std::vector<std::string>& words, double order, bool same_result = false) {
      moves.push_back({.changes = merged(best_, words),
                       .name = join(words, " "),
                       .predicted_ms = kUnknown + order,
                       .predicted_step_ms = {},
                       .same_result = same_result});
    };
    const bool on_gpu = best_trial().gpu_memory_gb.has_value();
    if (on_gpu && now.training.cuda_graph == "off") offer({"training.cuda_graph=auto"}, -2, /*same_result=*/true);
    if (allowed("batch")) {
      std::vector<std::string> words{concat("data.batch_size=", now.data.batch_size * 2)};
      if (now.training.accumulate % 2 == 0)
        words.push_back(concat("training.accumulate=", now.training.accumulate / 2));
      offer(words, 0);
      const bool no_room = out_of_memory_.contains(merged(best_, words));
      words.push_back("model.use_checkpoint=true");  // then its activations are computed twice, and not kept
      if (no_room && !now.model.use_checkpoint) offer(words, 3);
    }
    // On a GPU halves run on other, faster units; on a CPU a larger batch is the likelier gain.
    const double precision_order = on_gpu ? -1 : 1;
    if (allowed("precision") && now.training.precision == "32")
      offer({"training.precision=bf16-mixed"}, precision_order);
    if (allowed("patch"))
      for (const int64_t quarters : {5, 3}) {
        std::vector<std::string> sizes;
        bool other = false;  // a small one may come out as it was
        for (int axis = 0; axis < 3; ++axis) {
          const int64_t size = std::max<int64_t>(16, now.data.patch_size[axis] * quarters / 4 / 16 * 16);
          other = other || size != now.data.patch_size[axis];
          sizes.push_back(concat(size));
        }
        if (other) offer({concat("data.patch_size=", join(sizes, ","))}, 2);
      }
    return moves;
  }

  void try_move(const Move& move) {
    const size_t before = best_index_;
    Trial& trial = runner_.run(move.name, move.changes, move.predicted_step_ms);
    const Trial& base = runner_.trials()[before];
    if (worked(trial)) {
      if (move.same_result) trial.loss_difference = loss_difference(base, trial);
      const Node node{runner_.trials().size() - 1, move.changes, move.same_result};
      if (trial.loss_difference && !(*trial.loss_difference < kSameLoss))
        trial.verdict = TrialVerdict::kOtherLoss;
      else if (!move.predicted_step_ms && promises_more(node))
        trial.note = concat("limited by ", trial.bottleneck, ": judged with what helps there");
      else
        runner_.judge(trial, base);
      if (trial.verdict == TrialVerdict::kNotBetter) beyond_.push_back(node);
    }
    if (trial.verdict == TrialVerdict::kOutOfMemory) out_of_memory_.insert(move.changes);
    if (trial.verdict == TrialVerdict::kBetter) {
      note_evidence(move, base, trial);
      best_ = move.changes;
      best_index_ = runner_.trials().size() - 1;
      beyond_.clear();
    }
    const bool promised = move.predicted_ms < kUnknown;
    if (trial.verdict == TrialVerdict::kBetter || promised) disappointed_ = trial.verdict != TrialVerdict::kBetter;
    runner_.judged(trial);
  }

  void note_evidence(const Move& move, const Trial& base, const Trial& trial) {
    for (const std::string& word : words_of(move.changes)) {
      if (best_.contains(word.substr(0, word.find('='))) && evidence_.contains(word)) continue;
      evidence_[word] = concat(speed_text(base, trial), ", waiting ", format_number(base.data_wait_ms, 1), " -> ",
                               format_number(trial.data_wait_ms, 1), " ms a step; ", trial.note, "; it was limited by ",
                               base.bottleneck);
    }
  }

  TrialRunner& runner_;
  Changes best_;
  size_t best_index_ = 0;
  std::vector<Node> beyond_;   // tried from the best so far
  bool disappointed_ = false;  // by the predictions of the best so far
  std::set<Changes> tried_, out_of_memory_;
  std::map<std::string, std::string> evidence_;  // by key=value
};

}  // namespace

TuneResult search_settings(TrialRunner& runner) {
  return Search(runner).run();
}

}  // namespace vox
