#include "train/follower.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <torch/torch.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "base/error.h"
#include "base/text.h"
#include "base/thread_pool.h"
#include "config/device_name.h"
#include "report/run_folder.h"
#include "train/checkpoint.h"
#include "train/checkpoint_file.h"
#include "train/device_source.h"
#include "train/kernel_cache.h"
#include "train/learner.h"
#include "train/run_plan.h"
#include "train/state.h"
#include "train/step.h"
#include "train/threads.h"
#include "volume/shelf.h"
#include "volume/store.h"

namespace vox {
namespace {

constexpr const char* kVisible = "CUDA_VISIBLE_DEVICES";

std::vector<std::string> environment() {
  std::vector<std::string> result;
  for (char** entry = environ; *entry; ++entry) result.emplace_back(*entry);
  return result;
}

std::vector<std::string> environment_with_gpu(int number) {
  std::vector<std::string> result = environment();
  const std::string prefix = concat(kVisible, "=");
  std::erase_if(result, [&](const std::string& entry) { return entry.starts_with(prefix); });
  result.push_back(prefix + visible_gpu(number));
  return result;
}

std::vector<char*> pointers_to(std::vector<std::string>& words) {
  std::vector<char*> result;
  for (std::string& word : words) result.push_back(word.data());
  result.push_back(nullptr);
  return result;
}

Follower start_follower(const RunFolder& run, const at::Device& device, GpuFor gpu, Place place, int table) {
  Follower follower{0, (run.path() / concat("worker-", place.index, ".log")).string()};
  std::vector<std::string> words{"voxloom",
                                 "train",
                                 run.config().string(),
                                 "--follow",
                                 concat(table, ":", place.index, ":", getpid()),
                                 "--device",
                                 device.is_cuda() ? "cuda:0" : "cpu"};
  std::vector<std::string> variables =
      device.is_cuda() && gpu == GpuFor::kEachProcess ? environment_with_gpu(place.index) : environment();
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, follower.log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  posix_spawn_file_actions_adddup2(&files, STDOUT_FILENO, STDERR_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  // Signals are for the leader, those too that a batch system sends to every process of a job.
  sigset_t signals;
  sigemptyset(&signals);
  for (const int number : {SIGINT, SIGTERM, SIGUSR1, SIGHUP}) sigaddset(&signals, number);
  posix_spawnattr_setsigmask(&attributes, &signals);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK);
  const int status = posix_spawn(&follower.process, "/proc/self/exe", &files, &attributes, pointers_to(words).data(),
                                 pointers_to(variables).data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  if (status != 0) throw_system_error("start", "another process of this program", status);
  return follower;
}

std::array<int, 3> numbers_of(const std::string& place) {
  const std::vector<std::string> parts = split(place, ':');
  VOX_CHECK(parts.size() == 3, "--follow is for processes that a training starts itself");
  return {std::atoi(parts[0].c_str()), std::atoi(parts[1].c_str()), std::atoi(parts[2].c_str())};
}

}  // namespace

Team::Starter follower_starter(const std::filesystem::path& run, const at::Device& device, GpuFor gpu) {
  return [run = RunFolder::open(run), device, gpu](Place place, int table) {
    return start_follower(run, device, gpu, place, table);
  };
}

void follow(const FollowRequest& request) {
  const auto [table, index, leader] = numbers_of(request.place);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != leader) return;  // it died before that
  const std::unique_ptr<Team> team = Team::follow(table, index);
  const TeamStart start = team->start();
  const Options& options = request.config.options;
  const Options share = share_of(options);
  SystemOptions one_gpu = options.system;
  one_gpu.num_gpus = 1;
  const at::Device device = choose_device(request.device, one_gpu);
  const ThreadPlan threads = plan_threads(share, device.is_cpu() ? ComputeOn::kCpu : ComputeOn::kGpu);
  use_threads(static_cast<int>(start.compute_threads));
  choose_kernels(options.training);
  keep_memory_between_steps(device);

  ThreadPool pool(threads.cpus);
  const Dataset dataset =
      make_dataset(options.data, options.training.fold, static_cast<uint64_t>(options.training.seed));
  const auto store = std::make_shared<Store>(dataset, share.data, pool, StoreProgress{});
  VOX_CHECK(key_of_cases(*store) == start.cases, "this process trains on other cases than the first one",
            store->skipped().empty() ? ""
                                     : concat(": case ", store->skipped().front().id, " is left out here, ",
                                              store->skipped().front().reason));
  std::optional<CheckpointFile> checkpoint;
  if (!start.checkpoint.empty()) checkpoint = read_checkpoint_file(start.checkpoint);
  if (device.is_cuda()) {
    const auto known = checkpoint ? state_of(checkpoint->metadata, start.checkpoint).kernel_choices
                                  : std::map<std::string, std::string>{};
    recall_kernel_choices(cache_folder(options.data.cache_dir), known);
  }
  Options network = options;
  if (checkpoint) network.model.weights.clear();  // where it began; the file may be gone
  Learner learner = make_learner(network, *store, device);
  if (checkpoint) restore(*checkpoint, learner.network->parameters(), *learner.optimizer);
  checkpoint.reset();

  const int64_t samples = samples_of_step(options);
  if (device.is_cuda()) {
    const WarmUp warm = warm_up(
        {learner, store, options, device, start.step * samples, start.micro_batch, threads.data, start.end_step});
    VOX_CHECK(warm.micro_batch == start.micro_batch, "this GPU has less free memory than the first one; ", warm.shrunk);
  }
  const TrainingSource data = training_source(
      {store, options, start.step * samples, start.micro_batch, threads.data, device, {}, &learner, team->place()});
  StepRunner runner({*learner.network, *learner.loss, *learner.optimizer, data.next},
                    StepRunner::settings_of(options, start.micro_batch, team.get()));
  team->assemble(device);
  for (int64_t step = start.step;; ++step) {
    const std::optional<double> lr = team->wait_for_step(step);
    if (!lr) return;
    runner.run(step, *lr);
    runner.take_note();
  }
}

}  // namespace vox
