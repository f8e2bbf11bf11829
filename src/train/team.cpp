#include "train/team.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <torch/torch.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fstream>
#include <new>

#include "base/error.h"
#include "base/start_thread.h"
#include "base/thread_pool.h"
#include "kernels/cuda.h"

namespace vox {
namespace {

using namespace std::chrono_literals;

constexpr int kMostProcesses = 1024;  // as system.num_gpus allows
constexpr int64_t kMostAhead = 256;   // steps that the leader begins before a follower does
constexpr auto kLastStep = 20s;       // that followers have to end by themselves

std::string last_line(const std::string& path) {
  std::ifstream file(path);
  std::string line, last;
  while (std::getline(file, line))
    if (!line.empty()) last = line;
  return last;
}

std::string how_it_ended(const Follower& follower, size_t number, int status) {
  const std::string how =
      WIFSIGNALED(status) ? concat("by signal ", WTERMSIG(status)) : concat("with exit status ", WEXITSTATUS(status));
  const std::string said = last_line(follower.log);
  return concat("worker ", number + 1, " of the training ended ", how, said.empty() ? "" : concat(" (", said, ")"),
                "; its messages are in ", follower.log);
}

}  // namespace

int team_size(const SystemOptions& system) {
  return static_cast<int>(std::max<int64_t>(1, system.num_gpus));
}

int64_t samples_of_step(const Options& options) {
  return options.data.batch_size * options.training.accumulate * team_size(options.system);
}

Options share_of(Options options) {
  const int count = team_size(options.system);
  if (count == 1) return options;
  const int64_t cpus = options.system.num_cpus > 0 ? options.system.num_cpus : available_cpus();
  options.system.num_cpus = std::max<int64_t>(1, cpus / count);
  options.data.cache_gb /= count;
  return options;
}

// What the processes share. Followed by two areas of `numbers` floats for each of them: while one is being read, the
// next sum may be written to the other.
struct Team::Table {
  int64_t count, step, end_step, micro_batch, numbers, compute_threads;
  uint64_t cases;
  char checkpoint[4096];
  TeamKey key;
  std::atomic<bool> over;
  std::atomic<int64_t> allowed;  // the first step that may not begin yet
  std::atomic<int64_t> begun[kMostProcesses], meetings[kMostProcesses];
  std::atomic<double> lr[2 * kMostAhead];

  static_assert(std::atomic<int64_t>::is_always_lock_free && std::atomic<double>::is_always_lock_free);
};

Team::Team(int file, Place place) : file_(file), place_(place) {}

std::unique_ptr<Team> Team::lead(int count, const TeamStart& start, const Starter& starter) {
  VOX_ASSERT(count <= kMostProcesses);
  VOX_CHECK(start.checkpoint.size() < sizeof(Table::checkpoint),
            "the path of the checkpoint is too long: ", start.checkpoint);
  const int file = memfd_create("voxloom-team", 0);
  if (file < 0) throw_system_error("make", "memory that processes share", errno);
  std::unique_ptr<Team> team(new Team(file, {0, count}));
  team->bytes_ = sizeof(Table) + static_cast<size_t>(2 * count * start.numbers) * sizeof(float);
  if (ftruncate(file, static_cast<off_t>(team->bytes_)) != 0)
    throw_system_error("make", "memory that processes share", errno);
  void* const memory = mmap(nullptr, team->bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED) throw_system_error("map", "memory that processes share", errno);
  Table* const table = team->table_ = new (memory) Table();
  table->count = count;
  table->step = table->allowed = start.step;
  table->end_step = start.end_step;
  table->micro_batch = start.micro_batch;
  table->numbers = start.numbers;
  table->compute_threads = start.compute_threads;
  table->cases = start.cases;
  for (std::atomic<int64_t>& begun : table->begun) begun = start.step;
  std::memcpy(table->checkpoint, start.checkpoint.c_str(), start.checkpoint.size() + 1);
  if constexpr (cuda::kCompiledIn)
    if (start.on_gpus) table->key = new_team_key();
  for (int index = 1; index < count; ++index) team->followers_.push_back(starter({index, count}, file));
  return team;
}

std::unique_ptr<Team> Team::follow(int file, int index) {
  const off_t bytes = lseek(file, 0, SEEK_END);
  VOX_CHECK(bytes >= static_cast<off_t>(sizeof(Table)), "--follow is for processes that a training starts itself");
  std::unique_ptr<Team> team(new Team(file, {index, 1}));
  team->bytes_ = static_cast<size_t>(bytes);
  void* const memory = mmap(nullptr, team->bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED) throw_system_error("map", "memory that processes share", errno);
  team->table_ = static_cast<Table*>(memory);
  team->place_.count = static_cast<int>(team->table_->count);
  return team;
}

Team::~Team() {
  if (table_ && place_.index == 0) table_->over = true;
  watch_.request_stop();
  if (watch_.joinable()) watch_.join();
  const auto deadline = std::chrono::steady_clock::now() + kLastStep;
  for (const Follower& follower : followers_) {
    int status = 0;
    while (waitpid(follower.process, &status, WNOHANG) == 0) {
      const bool patient = assembled_ && ended_.empty() && std::chrono::steady_clock::now() < deadline;
      if (!patient) kill(follower.process, SIGKILL);
      std::this_thread::sleep_for(5ms);
    }
  }
  device_sum_.reset();
  if (table_) munmap(table_, bytes_);
  close(file_);
}

TeamStart Team::start() const {
  return {table_->step,       table_->end_step,         table_->micro_batch, table_->numbers, table_->compute_threads,
          table_->checkpoint, table_->key != TeamKey{}, table_->cases};
}

void Team::wait_until(const std::function<bool()>& done, const std::function<void()>& meanwhile) {
  constexpr int kImpatient = 200, kChecks = 512;
  for (int64_t round = 0; !done(); ++round) {
    if (round < kImpatient)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(50us);
    if (round % kChecks != kChecks - 1) continue;
    check();
    if (meanwhile) meanwhile();
  }
}

void Team::meet(const std::function<void()>& meanwhile) {
  const int64_t meeting = ++meetings_;
  table_->meetings[place_.index].store(meeting, std::memory_order_release);
  const auto all_here = [&] {
    return std::all_of(table_->meetings, table_->meetings + place_.count,
                       [&](const auto& other) { return other.load(std::memory_order_acquire) >= meeting; });
  };
  wait_until(all_here, meanwhile);
}

void Team::assemble(const at::Device& device, const std::function<void()>& meanwhile) {
  meet(meanwhile);
  assembled_ = true;
  if constexpr (cuda::kCompiledIn)
    if (device.is_cuda()) device_sum_ = make_team_sum(table_->key, place_, device);
  meet();
  if (place_.index != 0 || !device_sum_) return;
  // The host may be waiting for its GPU, and that one for a process that is gone.
  watch_ = start_thread<std::jthread>([this](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      if (look_after_followers()) return device_sum_->abort();
      std::this_thread::sleep_for(100ms);
    }
  });
}

bool Team::look_after_followers() {
  const std::lock_guard lock(ended_mutex_);
  for (size_t i = 0; i < followers_.size() && ended_.empty(); ++i) {
    int status = 0;
    if (waitpid(followers_[i].process, &status, WNOHANG) != 0) ended_ = how_it_ended(followers_[i], i, status);
  }
  return !ended_.empty();
}

void Team::check() {
  if (place_.index != 0 && table_->over) throw Error("the process that leads the training has ended", Fault::kMachine);
  if (place_.index == 0 && look_after_followers())
    throw Error(concat(ended_, ". The same command goes on from the last checkpoint."), Fault::kMachine);
}

void Team::allow_step(int64_t step, double lr) {
  check();
  wait_until([&] {
    return std::all_of(table_->begun + 1, table_->begun + place_.count,
                       [&](const auto& begun) { return begun + kMostAhead > step; });
  });
  table_->lr[step % (2 * kMostAhead)] = lr;
  table_->allowed = step + 1;
}

std::optional<double> Team::wait_for_step(int64_t step) {
  for (int64_t round = 0; table_->allowed <= step; ++round) {
    if (table_->over) return std::nullopt;
    std::this_thread::sleep_for(round < 1000 ? 50us : 1000us);
  }
  table_->begun[place_.index] = step + 1;
  return table_->lr[step % (2 * kMostAhead)];
}

float* Team::numbers_of(int index) const {
  auto* const first = reinterpret_cast<float*>(reinterpret_cast<std::byte*>(table_) + sizeof(Table));
  return first + (host_sums_ % 2 * place_.count + index) * table_->numbers;
}

void Team::sum(const std::vector<at::Tensor>& tensors) {
  device_sum_ ? device_sum_->add_up(tensors) : sum_on_host(tensors);
}

// In the order of the processes: as one process would that had all of their micro-batches.
void Team::sum_on_host(const std::vector<at::Tensor>& tensors) {
  const at::NoGradGuard no_grad;
  const auto view = [](float* numbers, const at::Tensor& like) {
    return torch::from_blob(numbers, like.sizes(), like.strides(), at::kFloat);
  };
  ++host_sums_;
  int64_t used = 0;
  for (const at::Tensor& tensor : tensors) {
    VOX_ASSERT(used + tensor.numel() <= table_->numbers);
    view(numbers_of(place_.index) + used, tensor).copy_(tensor);
    used += tensor.numel();
  }
  meet();
  used = 0;
  for (const at::Tensor& tensor : tensors) {
    at::Tensor total = view(numbers_of(0) + used, tensor);
    for (int index = 1; index < place_.count; ++index) total = total + view(numbers_of(index) + used, tensor);
    tensor.copy_(total);
    used += tensor.numel();
  }
}

}  // namespace vox
