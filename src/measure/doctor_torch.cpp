#include "measure/doctor_torch.h"

#include <ATen/detail/CUDAHooksInterface.h>
#include <torch/torch.h>

#include <algorithm>

#include "base/error.h"
#include "base/random.h"
#include "base/span.h"
#include "base/text.h"
#include "kernels/cuda.h"
#include "measure/doctor.h"
#include "measure/doctor_files.h"

namespace vox {
namespace {

struct KnownTrouble {  // versions of torch or cuDNN that others found wanting; facts with their places
  const char *torch_from, *torch_before;  // empty: any torch
  int cudnn_from, cudnn_before;           // 0, 0: any cuDNN
  const char* sentence;
};

constexpr KnownTrouble kTroubles[] = {
    {"", "", 90800, 91100,
     "cuDNN 9.8 to 9.10 gives wrong convolutions in bfloat16 for large inputs (pytorch issue 163539); use cuDNN 9.11 "
     "or "
     "newer"},
    {"2.9.0", "2.9.1", 0, 0,
     "torch 2.9.0 does not use cuDNN for 3D convolutions: 4x slower, 17x the memory (pytorch issue 166122); use 2.9.1 "
     "with cuDNN 9.15, or newer"},
    {"2.9.1", "2.10.0", 1, 91500,
     "torch 2.9.1 uses cuDNN for 3D convolutions only from cuDNN 9.15 on (pytorch issue 166643); use that"},
};

std::string cudnn_text(int version) {
  return concat(version / 10000, ".", version % 10000 / 100, ".", version % 100);
}

bool applies(const KnownTrouble& trouble, const TorchFacts& torch, const std::string& version) {
  const std::string from = trouble.torch_from, before = trouble.torch_before;
  if (!from.empty() && (natural_less(version, from) || !natural_less(version, before))) return false;
  if (trouble.cudnn_before == 0) return torch.cuda_build;
  return torch.cudnn >= trouble.cudnn_from && torch.cudnn < trouble.cudnn_before;
}

at::Tensor draw_values(at::IntArrayRef sizes, uint64_t stream) {
  const at::Tensor values = at::empty(sizes);
  Random random(7, static_cast<int64_t>(stream), kSynthStream);
  float* const data = values.data_ptr<float>();
  for (int64_t i = 0; i < values.numel(); ++i) data[i] = static_cast<float>(random.uniform()) - 0.5f;
  return values;
}

struct TrialRequest {
  at::Device device;
  at::ScalarType type;
  std::string what;
  std::vector<int64_t> input;
  double allowed;
};

double relative_error(const at::Tensor& computed, const at::Tensor& truth) {
  const at::Tensor difference = (computed.to(at::kCPU, at::kDouble) - truth).abs().max();
  return difference.item<double>() / truth.abs().max().item<double>();
}

void wait_for(const at::Device& device) {
  if (device.is_cuda()) torch::cuda::synchronize(device.index());
}

// A 3x3x3 convolution; the truth is the same in double precision on the CPU, from the same rounded values.
ConvolutionTrial try_convolution(const TrialRequest& request) {
  ConvolutionTrial trial{
      .what = request.what, .milliseconds = 0, .error = 0, .allowed = request.allowed, .problem = {}};
  try {
    const int64_t channels = request.input[1];
    at::Tensor input = draw_values(request.input, 1).to(request.type);
    at::Tensor weight = draw_values({channels, channels, 3, 3, 3}, 2).to(request.type);
    const auto run = [&](at::Tensor image, at::Tensor kernel) {
      image = image.detach().requires_grad_(true);
      kernel = kernel.detach().requires_grad_(true);
      const at::Tensor output = at::conv3d(image, kernel, {}, 1, 1);
      const auto gradients = torch::autograd::grad({output.pow(2).sum()}, {image, kernel});
      return std::vector<at::Tensor>{output.detach(), gradients[0], gradients[1]};
    };
    const std::vector<at::Tensor> truth = run(input.to(at::kDouble), weight.to(at::kDouble));
    input = input.to(request.device);
    weight = weight.to(request.device);
    run(input, weight);  // chooses kernels
    wait_for(request.device);
    const Clock::time_point start = Clock::now();
    const std::vector<at::Tensor> computed = run(input, weight);
    wait_for(request.device);
    trial.milliseconds = 1e3 * seconds_since(start);
    for (size_t i = 0; i < truth.size(); ++i)
      trial.error = std::max(trial.error, relative_error(computed[i], truth[i]));
  } catch (const std::exception& error) {
    trial.problem = printable(split(error.what(), '\n').front());
  }
  return trial;
}

// As above for an image too large to redo on the CPU: boxes of the output, the last corner among them, are redone
// there.
ConvolutionTrial try_large_convolution(const TrialRequest& request) {
  ConvolutionTrial trial{
      .what = request.what, .milliseconds = 0, .error = 0, .allowed = request.allowed, .problem = {}};
  try {
    const int64_t channels = request.input[1], side = request.input[2];
    const at::Tensor tile = draw_values({1, channels, side / 4, side / 4, side / 4}, 3);
    const at::Tensor image = tile.to(request.device, request.type).repeat({1, 1, 4, 4, 4});
    const at::Tensor kernel = draw_values({channels, channels, 3, 3, 3}, 4).to(request.device, request.type);
    at::conv3d(image, kernel);  // chooses kernels
    wait_for(request.device);
    const Clock::time_point start = Clock::now();
    const at::Tensor output = at::conv3d(image, kernel);
    wait_for(request.device);
    trial.milliseconds = 1e3 * seconds_since(start);
    const auto box = [](const at::Tensor& of, int64_t begin, int64_t size) {
      return of.narrow(2, begin, size).narrow(3, begin, size).narrow(4, begin, size).to(at::kCPU, at::kDouble);
    };
    for (const int64_t begin : {int64_t{0}, side / 2, side - 8}) {
      const at::Tensor truth = at::conv3d(box(image, begin, 8), kernel.to(at::kCPU, at::kDouble));
      trial.error = std::max(trial.error, relative_error(box(output, begin, 6), truth));
    }
  } catch (const std::exception& error) {
    trial.problem = printable(split(error.what(), '\n').front());
  }
  return trial;
}

std::string trial_text(const ConvolutionTrial& trial) {
  return concat(trial.what, " ", format_number(trial.milliseconds, 1), " ms");
}

}  // namespace

TorchFacts torch_facts() {
  TorchFacts facts;
  facts.built_for = VOX_TORCH_VERSION;
  const auto& hooks = at::detail::getCUDAHooks();
  facts.kernels = cuda::kCompiledIn;
  facts.cuda_build = hooks.hasCUDA() || hooks.hasCuDNN();
  if (!facts.cuda_build) facts.cuda_build = facts.built_for.find("+cu") != std::string::npos;
  try {
    facts.gpus = static_cast<int>(torch::cuda::device_count());
    if (hooks.hasCUDA()) facts.cuda = static_cast<int>(hooks.versionCUDART());
    if (hooks.hasCuDNN()) facts.cudnn = static_cast<int>(hooks.versionCuDNN());
  } catch (const std::exception&) {  // a driver that does not start: examine_gpu says why
  }
  return facts;
}

std::vector<ConvolutionTrial> try_convolutions(const TorchFacts& torch) {
  const std::vector<int64_t> small{1, 8, 24, 24, 24}, large{1, 16, 256, 256, 256};
  std::vector<TrialRequest> requests{{at::kCPU, at::kFloat, "float32 on the CPU", small, 1e-4}};
  if (torch.gpus > 0) {
    const at::Device gpu(at::kCUDA, 0);
    requests.push_back({gpu, at::kFloat, "float32 on the GPU", small, 1e-4});
    requests.push_back({gpu, at::kHalf, "float16 on the GPU", small, 2e-2});
    requests.push_back({gpu, at::kBFloat16, "bfloat16 on the GPU", small, 5e-2});
    requests.push_back({gpu, at::kFloat, "large float32 on the GPU", large, 1e-3});
    requests.push_back({gpu, at::kBFloat16, "large bfloat16 on the GPU", large, 5e-2});
  }
  std::vector<ConvolutionTrial> trials;
  for (const TrialRequest& request : requests)
    trials.push_back(request.input == large ? try_large_convolution(request) : try_convolution(request));
  return trials;
}

void convolve_bfloat16() {
  const at::Tensor image = draw_values({1, 8, 12, 12, 12}, 1).to(at::kBFloat16);
  const at::Tensor kernel = draw_values({8, 8, 3, 3, 3}, 2).to(at::kBFloat16).requires_grad_(true);
  torch::autograd::grad({at::conv3d(image, kernel, {}, 1, 1).sum()}, {kernel});
}

std::vector<Finding> examine_torch(const MachineView& machine) {
  const TorchFacts& torch = machine.torch;
  std::vector<Finding> found;
  const std::string proof = "voxloom doctor --json";
  if (!torch.loaded.empty() && torch.loaded != torch.built_for)
    found.push_back(
        {"torch", Outlook::kFails,
         concat("built for torch ", torch.built_for, " but torch ", torch.loaded, " is loaded; run `make build` again"),
         proof});
  const std::string cudnn = torch.cudnn > 0 ? concat(", cuDNN ", cudnn_text(torch.cudnn)) : "";
  for (const KnownTrouble& trouble : kTroubles)
    if (applies(trouble, torch, split(torch.built_for, '+').front()))
      found.push_back(
          {"torch", Outlook::kHurts, concat("torch ", torch.built_for, cudnn, ": ", trouble.sentence), proof});
  if (found.empty())
    found.push_back({"torch", Outlook::kFine, concat("torch ", torch.built_for, cudnn, ", no trouble known"), proof});
  return found;
}

std::vector<Finding> examine_operations(const MachineView& machine) {
  std::vector<Finding> found;
  std::vector<std::string> good;
  const ConvolutionTrial* large_float = nullptr;
  const std::string proof = "voxloom bench step --steps 5";
  for (const ConvolutionTrial& trial : machine.torch.trials) {
    if (trial.what.starts_with("large float32")) large_float = &trial;
    if (!trial.problem.empty()) {
      found.push_back(
          {"operations", Outlook::kFails, concat("a convolution in ", trial.what, " failed: ", trial.problem), proof});
    } else if (!(trial.error <= trial.allowed)) {
      found.push_back({"operations", Outlook::kFails,
                       concat("a convolution in ", trial.what, " is wrong by ", format_number(100 * trial.error, 1),
                              " % of its largest value, where ", format_number(100 * trial.allowed, 2),
                              " % is rounding; use another torch or cuDNN"),
                       proof});
    } else if (trial.what.starts_with("large bfloat16") && large_float &&
               trial.milliseconds > large_float->milliseconds) {
      found.push_back({"operations", Outlook::kHurts,
                       concat("half precision is slower than float32 here (", trial_text(trial), ", ",
                              trial_text(*large_float), "): torch does not use cuDNN for it"),
                       proof});
    } else {
      good.push_back(trial_text(trial));
    }
  }
  if (!good.empty())
    found.push_back(
        {"operations", Outlook::kFine, "convolutions, forward and backward, are right: " + join(good, ", "), proof});
  return found;
}

std::vector<Finding> examine_instructions(const MachineView& machine) {
  std::vector<std::string> advertised;
  for (const std::string& line : read_lines(machine, "/proc/cpuinfo")) {
    if (!line.starts_with("flags")) continue;
    const std::vector<std::string> flags = split(line, ' ');
    for (const char* flag : {"avx512_bf16", "amx_bf16", "avx512_fp16"})
      if (std::find(flags.begin(), flags.end(), flag) != flags.end()) advertised.push_back(flag);
    break;
  }
  const std::string proof = "voxloom doctor --probe bfloat16";
  if (advertised.empty() || !machine.try_bfloat16)
    return {{"instructions", Outlook::kFine,
             "this CPU does not advertise arithmetic in half precision; Voxloom computes "
             "half precision in float32 on a CPU",
             proof}};
  const ChildOutcome outcome = machine.try_bfloat16();
  const std::string names = join(advertised, ", ");
  if (outcome.signal == 0 && outcome.status == 0)
    return {{"instructions", Outlook::kFine, concat("a convolution in bfloat16 runs (", names, ")"), proof}};
  const std::string end =
      outcome.signal != 0 ? concat("dies of signal ", outcome.signal) : concat("ends with status ", outcome.status);
  return {{"instructions", Outlook::kHurts,
           concat("this CPU advertises ", names, ", but a convolution in bfloat16 ", end,
                  ": other torch programs will too. Voxloom computes half precision in float32 on a CPU, so it runs, "
                  "without gain from half precision"),
           proof}};
}

}  // namespace vox
