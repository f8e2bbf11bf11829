#include "train/precision.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <torch/torch.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <map>
#include <mutex>

#include "base/error.h"

namespace vox {
namespace {

constexpr unsigned kProbeSeconds = 20;

// A step's worth of instructions: convolution forward and both backwards, and the norm between.
[[noreturn]] void probe_in_child(at::ScalarType type) {
  for (const int signal : {SIGILL, SIGSEGV, SIGBUS, SIGFPE, SIGABRT, SIGALRM, SIGTERM, SIGINT}) {
    std::signal(signal, SIG_DFL);
  }
  const rlimit no_core{0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  alarm(kProbeSeconds);
  try {
    at::set_num_threads(1);  // the parent's threads do not exist here
    const at::NoGradGuard no_grad;
    const at::Tensor x = at::ones({1, 16, 8, 8, 8}, type), w = at::full({16, 16, 3, 3, 3}, 0.01, type);
    const at::Tensor y = at::conv3d(x, w, {}, at::IntArrayRef{1, 1, 1}, at::IntArrayRef{1, 1, 1});
    const auto grads = at::convolution_backward(y, x, w, std::nullopt, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, false,
                                                {0, 0, 0}, 1, {true, true, false});
    const at::Tensor up = at::conv_transpose3d(y, at::full({16, 8, 2, 2, 2}, 0.01, type), {}, {2, 2, 2});
    const at::Tensor sum =
        std::get<0>(grads).to(at::kFloat).sum() + std::get<1>(grads).to(at::kFloat).sum() + up.to(at::kFloat).sum();
    _exit(std::isfinite(sum.item<float>()) ? 0 : 2);
  } catch (...) {
    _exit(1);
  }
}

std::string describe_end(int status) {
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return "";
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM) return concat("gave no answer in ", kProbeSeconds, " s");
  if (WIFSIGNALED(status)) return concat("died of ", strsignal(WTERMSIG(status)));
  return WEXITSTATUS(status) == 1 ? "is not supported" : "gave a wrong result";
}

std::string run_probe(at::ScalarType type) {
  const pid_t child = fork();
  if (child < 0) return concat("could not be tried (", std::strerror(errno), ")");
  if (child == 0) probe_in_child(type);
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return concat("could not be tried (", std::strerror(errno), ")");
  }
  return describe_end(status);
}

}  // namespace

Precision parse_precision(const std::string& text) {
  if (text == "32") return Precision::k32;
  if (text == "tf32") return Precision::kTf32;
  if (text == "16-mixed" || text == "amp") return Precision::k16Mixed;
  if (text == "bf16-mixed") return Precision::kBf16Mixed;
  throw Error(concat("training.precision: there is 32, tf32, 16-mixed and bf16-mixed, not \"", text, "\""));
}

at::ScalarType compute_type(Precision precision) {
  if (precision == Precision::k16Mixed) return at::kHalf;
  return precision == Precision::kBf16Mixed ? at::kBFloat16 : at::kFloat;
}

std::string probe_cpu_type(at::ScalarType type) {
  static std::mutex mutex;  // guards answers
  static std::map<at::ScalarType, std::string> answers;
  const std::lock_guard lock(mutex);
  const auto found = answers.find(type);
  return found != answers.end() ? found->second : answers.emplace(type, run_probe(type)).first->second;
}

void apply_precision(Precision precision, const at::Device& device) {
  const bool tf32 = precision == Precision::kTf32;
  at::globalContext().setAllowTF32CuDNN(tf32);
  at::globalContext().setFloat32MatmulPrecision(tf32 ? "high" : "highest");
  if (!device.is_cpu() || compute_type(precision) == at::kFloat) return;
  const std::string trouble = probe_cpu_type(compute_type(precision));
  VOX_CHECK(trouble.empty(), "training.precision: a convolution in ", at::toString(compute_type(precision)), " ",
            trouble, " on this CPU; use training.precision=32");
}

}  // namespace vox
