#include "train/trainer.h"

#include <ATen/Version.h>
#include <torch/torch.h>

#include <csignal>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/text.h"
#include "base/thread_pool.h"
#include "config/iterations.h"
#include "report/machine.h"
#include "report/metrics_csv.h"
#include "train/checkpoint.h"
#include "train/device_source.h"
#include "train/follower.h"
#include "train/kernel_cache.h"
#include "train/run_plan.h"
#include "train/training_loop.h"
#include "train/without_effect.h"
#include "volume/shelf.h"

namespace vox {
namespace {

constexpr int kWarmUpRounds = 5;  // to fix the length of an epoch that is given as a duration

RunFolder open_run(const TrainRequest& request) {
  if (!request.run.empty()) return RunFolder::create_at(request.run);
  const std::string stem = request.config.file.stem().string();
  return RunFolder::create("runs", stem.empty() ? "run" : stem);
}

std::optional<RunRecord> former_record(const TrainRequest& request) {
  if (request.run.empty() || !RunFolder::is_run(request.run)) return std::nullopt;
  return read_record(RunFolder::open(request.run));
}

struct StoppedWhileLoading {};  // thrown where nothing was done that would have to be saved

class Session {
 public:
  explicit Session(const TrainRequest& request)
      : request_(request),
        options_(request.config.options),
        device_(choose_device(request.device, options_.system)),
        threads_(plan_threads(share_of(options_), device_.is_cpu() ? ComputeOn::kCpu : ComputeOn::kGpu)),
        former_(former_record(request)),
        writer_(open_run(request), {.commit = request.commit,
                                    .command = request.command,
                                    .libraries = {{"torch", TORCH_VERSION}},
                                    .machine = machine_description()}),
        log_(writer_, options_, {}) {}

  TrainOutcome run() {
    try {
      return run_guarded();
    } catch (const std::exception& error) {
      writer_.log(concat("failed: ", error.what()));
      if (former_ && !changed_ && former_->state != RunState::kFailed)  // refused: the run is what it was
        writer_.put_back(*former_, concat("refused: ", error.what()));
      else
        writer_.finish(RunState::kFailed, error.what());
      if (changed_) write_report_quietly();
      throw;
    }
  }

  RehearsalReport rehearse(int64_t steps);

 private:
  TrainOutcome run_guarded() {
    std::optional<ResumePoint> point = find_resume_point(writer_.folder(), request_.resume, options_);
    if (point && is_finished(point->state, options_)) return already_finished(*point);
    try {
      prepare(point);
      if (team_size(options_.system) > 1) start_team(point ? point->file.path.string() : "");
    } catch (const StoppedWhileLoading&) {
      return outcome_of(signals_.stop_signal() != 0 ? LoopEnd::kSignal : LoopEnd::kRequest);
    }
    return outcome_of(train_on());
  }

  void leave_if_asked() const {
    if (signals_.stop_signal() != 0 || writer_.stop_requested() != StopRequest::kNone) throw StoppedWhileLoading();
  }

  TrainOutcome already_finished(const ResumePoint& point) {
    const std::string how = how_to_go_on(point.state, options_);
    VOX_CHECK(former_ && holds(point), "the run that ", point.file.path.string(), " is from is finished ", how);
    writer_.finish(RunState::kFinished, why_early(point.state, options_));
    return {0, writer_.folder().path(), concat("The run ", writer_.folder().path().string(), " is finished ", how)};
  }

  void prepare(std::optional<ResumePoint>& point) {
    CheckpointFolder(writer_.folder().checkpoints()).remove_leftovers();
    if (!former_) write_configuration();
    for (const std::string& warning : request_.config.warnings) log_.warn(warning);
    if (request_.device.empty() && leaves_a_gpu_alone(options_.system))
      log_.warn(
          "there is a GPU here, but this program was built for the CPU alone; docs/gpu.md says how to build for it");
    if (point) take_state(*point);
    const bool fit = options_.system.num_cpus == 0 || state_.compute_threads <= threads_.compute;
    if (state_.compute_threads > 0 && options_.system.compute_threads == 0 && fit)
      threads_.compute = state_.compute_threads;
    use_threads(threads_.compute);
    if (device_.is_cuda()) log_.watch_gpu(device_.index() < 0 ? 0 : device_.index());
    choose_kernels(options_.training);
    keep_memory_between_steps(device_);
    if (device_.is_cuda()) recall_kernel_choices(cache_folder(options_.data.cache_dir), state_.kernel_choices);
    load_data();
    Options network = options_;
    if (point) network.model.weights.clear();  // where it began; the file may be gone
    learner_ = make_learner(network, *store_, device_);
    if (!request_.export_folder.empty())
      export_weights(learner_.network->parameters(),
                     (fs::path(request_.export_folder) / "weights.safetensors").string());
    if (point)
      take_up(*point);
    else if (!learner_.partial_weights.empty())
      log_.warn(learner_.partial_weights);
    settle_micro_batch_and_length();
    go_on_from(point);
    write_configuration();
    fill_state();
  }

  void write_configuration() { write_file(writer_.folder().config(), to_yaml(options_)); }

  // Refuses curves that cannot be read, and nothing else: what the run has of steps to be made anew is set aside or
  // cut.
  void go_on_from(std::optional<ResumePoint>& point) {
    const bool other_history = point && !holds(*point);
    const bool anew = request_.resume.mode == ResumeMode::kNever || other_history;
    if (const fs::path curves = writer_.folder().metrics(); !anew && path_exists(curves)) read_metrics(curves);
    changed_ = true;
    if (anew)
      if (const std::string said = set_aside(writer_.folder()); other_history && !said.empty()) log_.warn(said);
    if (point && (from_file() || point->judged_otherwise))
      for (const std::string& said : go_back_to(writer_.folder(), state_, point->file.path)) log_.warn(said);
    if (request_.resume.mode == ResumeMode::kAuto && former_)
      if (const std::string said = make_good(writer_.folder(), *former_, state_); !said.empty()) log_.warn(said);
    log_.resume_after(other_history ? 0 : state_.step, state_.epoch_open);
  }

  void load_data() {
    const auto start = Clock::now();
    const Dataset dataset =
        make_dataset(options_.data, options_.training.fold, static_cast<uint64_t>(options_.training.seed));
    pool_ = std::make_unique<ThreadPool>(threads_.cpus);
    StoreProgress progress;
    progress.update = [&](const std::string& what, int64_t done, int64_t total, int64_t bytes) {
      const double share = total > 0 ? static_cast<double>(done) / static_cast<double>(total) : 1;
      const double expected = share > 0 ? static_cast<double>(bytes) / share : 0;
      log_.loading(what, bytes, static_cast<int64_t>(expected), seconds_since(start));
      leave_if_asked();
    };
    store_ = std::make_shared<Store>(dataset, share_of(options_).data, *pool_, progress);
    for (const SkippedCase& skipped : store_->skipped())
      log_.warn(concat("case ", skipped.id, " is left out: ", skipped.reason));
    const Dataset& kept = store_->dataset();
    require_labels(kept);
    log_.say(concat(kept.cases.size(), " cases: ", kept.train.size(), " to train, ", kept.validation.size(),
                    " to validate; ", threads_.data, threads_.data == 1 ? " data thread, " : " data threads, ",
                    threads_.compute, threads_.compute == 1 ? " compute thread, on " : " compute threads, on ",
                    device_.str()));
    if (kept.validation.empty() && options_.validation.every > 0)
      log_.warn("no case is left to validate with: there will be no scores and no best checkpoint");
  }

  void take_state(const ResumePoint& point) {
    state_ = point.state;
    state_.stopped_early = false;
  }

  void require_same_cases(ResumePoint& point) {
    TrainState now;
    note_cases(*store_, now);
    const std::string changes = changed_cases(state_, now);
    if (changes.empty()) return;
    const std::string sentence = concat("the cases are not those of the checkpoint (", changes, ")");
    VOX_CHECK(request_.resume.force, sentence,
              ", so other samples and scores would follow; mend the data, or add --force");
    point.notes.push_back(sentence);
    if (!state_.training_cases.empty() && now.validation_cases != state_.validation_cases) forget_scores(point);
    take_state(point);
  }

  void take_up(ResumePoint& point) {
    require_same_cases(point);
    restore(point.file, learner_.network->parameters(), *learner_.optimizer);
    kept_ = tensors_under(point.file, "late.");
    for (const std::string& note : point.notes) log_.warn(note);
    const std::string rounding = rounding_note(point.state, machine_of(device_, options_), threads_.compute);
    if (!rounding.empty()) log_.warn(rounding);
    log_.say(concat("going on from ", point.file.path.string(), " after step ", state_.step));
  }

  void start_team(const std::string& checkpoint) {
    const std::vector<std::string> terms = learner_.loss->term_names();
    // A GPU that is named is for all of them; NCCL wants one for each.
    const GpuFor gpu = request_.device.empty() ? GpuFor::kEachProcess : GpuFor::kAllProcesses;
    const bool on_gpus = device_.is_cuda() && gpu == GpuFor::kEachProcess;
    TeamStart start{state_.step, end_step(), state_.micro_batch,   std::ssize(terms) + 1, threads_.compute,
                    checkpoint,  on_gpus,    key_of_cases(*store_)};
    for (const Parameter& parameter : learner_.network->parameters().all())
      if (is_trained(parameter.spec.kind) || is_running(parameter.spec.kind)) start.numbers += parameter.master.numel();
    const int count = team_size(options_.system);
    log_.say(concat("training in ", count, " processes, each with batches of its own: a step has ",
                    samples_of_step(options_), " samples"));
    team_ = Team::lead(count, start, follower_starter(writer_.folder().path(), device_, gpu));
    team_->assemble(device_, [this] { leave_if_asked(); });
  }

  void settle_micro_batch_and_length() {
    const bool timed = timed_epochs() && state_.steps_per_epoch == 0;
    const size_t cases = store_->dataset().train.size();
    if (!timed_epochs()) state_.steps_per_epoch = epoch_steps(options_, cases, 1);
    if (state_.micro_batch == 0) state_.micro_batch = options_.data.batch_size;
    const int64_t effective = samples_of_step(options_);
    VOX_CHECK(effective % (state_.micro_batch * team_size(options_.system)) == 0,
              "the checkpoint has a micro-batch of ", state_.micro_batch, ", which does not divide the batch of ",
              effective);
    if (timed || device_.is_cuda()) {
      const WarmUp warm = warm_up({learner_, store_, options_, device_, state_.step * effective, state_.micro_batch,
                                   threads_.data, timed ? kNoEnd : end_step(), timed ? kWarmUpRounds : 1});
      state_.micro_batch = warm.micro_batch;
      if (timed) state_.steps_per_epoch = epoch_steps(options_, cases, warm.step_s);
      if (!warm.shrunk.empty()) log_.warn(warm.shrunk);
    }
    schedule_ = std::make_unique<Schedule>(options_.training, ScheduleLength{end_step(), state_.steps_per_epoch});
    schedule_->restore(state_.schedule);
    const Dataset& dataset = store_->dataset();
    PlannedRun facts{.total_steps = end_step(),
                     .validation_cases = static_cast<int64_t>(dataset.validation.size()),
                     .on_cpu = device_.is_cpu(),
                     .label_values = store_->label_values()};
    for (size_t i = 0; i < dataset.cases.size(); ++i)
      facts.labels.push_back({dataset.cases[i].id, store_->facts(static_cast<int64_t>(i)).label_counts});
    for (const std::string& note : without_effect(options_, facts)) log_.warn(note);
    log_.set_length({options_.training.max_epochs, state_.steps_per_epoch, effective});
    state_.epoch_open = state_.epoch_open && state_.step % state_.steps_per_epoch == 0;
  }
  bool holds(const ResumePoint& point) const {  // this run
    return CheckpointFolder(writer_.folder().checkpoints()).holds(point.file.path);
  }
  bool from_file() const { return request_.resume.mode == ResumeMode::kFile; }
  int64_t end_step() const { return options_.training.max_epochs * state_.steps_per_epoch; }
  bool timed_epochs() const { return parse_iterations(options_.training.iterations_per_epoch).seconds.has_value(); }

  void fill_state() {
    state_.compute_threads = threads_.compute;
    state_.machine = machine_of(device_, options_);
    state_.kernel_choices = ops::kernel_choices();
    keep_kernel_choices(cache_folder(options_.data.cache_dir), writer_.folder().path());
    state_.class_values = class_values(options_, *store_, std::ssize(learner_.loss->label_channels().channels));
    state_.input_statistics.clear();
    for (const ChannelStatistics& one : store_->dataset_statistics())
      state_.input_statistics.push_back({one.mean, one.deviation});
    note_cases(*store_, state_);
  }

  TrainingLoop::Parts loop_parts() {
    return {options_,
            learner_,
            store_,
            writer_,
            log_,
            state_,
            *schedule_,
            signals_,
            threads_,
            device_,
            request_.export_folder,
            std::move(kept_),
            request_.probe ? &*request_.probe : nullptr,
            team_.get(),
            from_file()};
  }

  LoopEnd train_on() {
    TrainingLoop loop(loop_parts());
    begun_ = true;
    const LoopEnd end = loop.run();
    loop.finish_saving();
    return end;
  }

  void write_report_quietly() {  // a run that ends must not fail over its own description
    try {
      log_.finish();
    } catch (const std::exception& error) {
      log_.warn(concat("the report could not be written: ", error.what()));
    }
  }

  const char* of_resume() const {  // what the command that goes on says of it
    if (request_.resume.mode == ResumeMode::kAuto) return "";
    const bool same_again = from_file() ? !begun_ : !changed_;
    return same_again ? " and its --resume" : " and without --resume";
  }

  TrainOutcome outcome_of(LoopEnd end) {
    const bool stopped = end == LoopEnd::kSignal || end == LoopEnd::kRequest;
    const int signal = end == LoopEnd::kSignal ? signals_.stop_signal() : 0;
    const std::string why = signal == SIGINT ? "SIGINT" : signal == SIGTERM ? "SIGTERM" : "voxloom stop";
    const std::string run = writer_.folder().path().string();
    if (former_ && !changed_) {  // stopped before anything was done: the run is what it was
      writer_.put_back(*former_, concat("stopped: ", why));
    } else {
      writer_.finish(stopped ? RunState::kStopped : RunState::kFinished, stopped ? why : why_early(state_, options_));
      write_report_quietly();
    }
    std::string sentence =
        concat(stopped ? "Stopped" : "Finished", standing(state_, options_), ". The run is in ", run);
    if (stopped) sentence += concat("; the same command with --run ", run, of_resume(), " goes on.");
    return {signal == 0 ? 0 : 128 + signal, run, sentence};
  }

  const TrainRequest& request_;
  Options options_;
  SignalWatch signals_;
  at::Device device_;
  ThreadPlan threads_;
  std::optional<RunRecord> former_;  // of a run that was there before
  RunWriter writer_;
  RunLog log_;
  std::unique_ptr<ThreadPool> pool_;
  std::shared_ptr<Store> store_;
  Learner learner_;
  std::unique_ptr<Schedule> schedule_;
  TrainState state_;
  NamedTensors kept_;  // of the checkpoint: what terms with a delay found before it
  std::unique_ptr<Team> team_;
  bool changed_ = false;  // the run: until then a start that ends leaves it as it was
  bool begun_ = false;    // the loop, which saves where it is stopped
};

RehearsalReport Session::rehearse(int64_t steps) {
  try {
    std::optional<ResumePoint> from_nothing;
    prepare(from_nothing);
  } catch (const StoppedWhileLoading&) {
    return {.stop_signal = signals_.stop_signal()};
  }
  const TrainingSource data = training_source(
      {store_, options_, 0, state_.micro_batch, threads_.data, device_, request_.export_folder, &learner_});
  if (!data.placement.said.empty()) log_.say(data.placement.said);
  StepRunner runner({*learner_.network, *learner_.loss, *learner_.optimizer, data.next},
                    StepRunner::settings_of(options_, state_.micro_batch));
  RehearsalReport report{.steps = 0, .steps_per_epoch = state_.steps_per_epoch, .epochs = options_.training.max_epochs};
  std::vector<double> seconds, waits;
  for (int64_t step = 0; step < steps && signals_.stop_signal() == 0; ++step) {
    const auto start = Clock::now();
    const StepReport done = runner.run(step, schedule_->lr(step));
    const double loss = read_step_values(done.values.to(at::kCPU, at::kFloat)).loss;
    seconds.push_back(seconds_since(start));
    waits.push_back(runner.take_times()[Stage::kDataWait]);
    writer_.step_done(step + 1);
    log_.say(concat("step ", step + 1, ": loss ", format_number(loss, 4), ", ", human_seconds(seconds.back())));
    report.steps = step + 1;
  }
  writer_.finish(RunState::kFinished);
  report.stop_signal = signals_.stop_signal();
  if (seconds.empty()) return report;
  const auto median = [](std::vector<double> values) {
    if (values.size() > 1) values.erase(values.begin());  // the first also makes plans and buffers
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
  };
  report.first_step_s = seconds.front();
  report.step_s = median(seconds);
  report.data_wait_s = median(waits);
  return report;
}

// What is measured is a step of one process.
TrainRequest alone(TrainRequest request) {
  int64_t& gpus = request.config.options.system.num_gpus;
  gpus = std::min<int64_t>(gpus, 1);
  return request;
}

}  // namespace

TrainOutcome train(const TrainRequest& request) {
  check_text(request.config.options);  // before there is a run
  return request.probe ? Session(alone(request)).run() : Session(request).run();
}

RehearsalReport rehearse(const TrainRequest& request, int64_t steps) {
  return Session(alone(request)).rehearse(steps);
}

}  // namespace vox
