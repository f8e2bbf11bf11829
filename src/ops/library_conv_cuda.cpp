#include "ops/library_conv.h"

#include <ATen/DeviceAccelerator.h>
#include <torch/torch.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <string>
#include <tuple>
#include <unordered_set>
#include <vector>

#include "base/error.h"
#include "ops/device.h"
#include "ops/fused_cuda.h"
#include "ops/kernel_choice.h"

namespace vox::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

enum class Way : int64_t { kForward, kInputGradient, kWeightGradient };

constexpr int kAllPlans = 10;  // torch's own limit
constexpr int kFewer[] = {1, 3};

int64_t output_elements(const at::Tensor& x, const at::Tensor& weight, const LibraryConv& how) {
  int64_t elements = x.size(0) * weight.size(how.transposed ? 1 : 0);
  for (size_t a = 0; a < 3; ++a) {
    const int64_t in = x.size(static_cast<int64_t>(a) + 2), kernel = weight.size(static_cast<int64_t>(a) + 2);
    elements *= how.transposed ? (in - 1) * how.stride[a] - 2 * how.padding[a] + kernel + how.output_padding[a]
                               : (in + 2 * how.padding[a] - kernel) / how.stride[a] + 1;
  }
  return elements;
}

struct Operation {
  Way way;
  const at::Tensor &x, &weight;  // or their gradients
  const LibraryConv& how;

  int64_t bytes() const { return bytes_of(x.numel() + weight.numel() + output_elements(x, weight, how)); }
  int64_t bytes_made() const {
    if (way == Way::kForward) return bytes_of(output_elements(x, weight, how));
    return bytes_of(way == Way::kInputGradient ? x.numel() : weight.numel());
  }
  int64_t bytes_of(int64_t elements) const { return elements * static_cast<int64_t>(x.element_size()); }

  std::vector<int64_t> numbers() const {
    std::vector<int64_t> all{static_cast<int64_t>(way), static_cast<int64_t>(x.scalar_type()), how.transposed};
    for (const at::IntArrayRef part : {x.sizes(), weight.sizes(), at::IntArrayRef(how.stride),
                                       at::IntArrayRef(how.padding), at::IntArrayRef(how.output_padding)})
      all.insert(all.end(), part.begin(), part.end());
    return all;
  }
  std::string name() const {
    constexpr const char* kWays[] = {"forward", "gradient of the input", "gradient of the weights"};
    static const std::string machine = gpu_and_libraries(x);
    return concat(machine, ": plans of a ", how.transposed ? "transposed " : "", "convolution, ",
                  kWays[static_cast<int64_t>(way)], ": ", x.scalar_type(), " ", x.sizes(), " by ", weight.sizes(),
                  " stride ", at::IntArrayRef(how.stride), " padding ", at::IntArrayRef(how.padding), " ",
                  at::IntArrayRef(how.output_padding));
  }
};

uint64_t hash_of(const std::vector<int64_t>& numbers) {
  uint64_t hash = 14695981039346656037u;
  for (const int64_t number : numbers) hash = (hash ^ static_cast<uint64_t>(number)) * 1099511628211u;
  return hash;
}

// How many plans cuDNN times while this lives; of one it takes what it expects to be the fastest.
class PlanCount {
 public:
  explicit PlanCount(int plans) : limit_(at::globalContext().benchmarkLimitCuDNN()) {
    at::globalContext().setBenchmarkCuDNN(plans > 1);
    if (plans < limit_) at::globalContext().setBenchmarkLimitCuDNN(plans);
  }
  ~PlanCount() {
    at::globalContext().setBenchmarkCuDNN(true);
    at::globalContext().setBenchmarkLimitCuDNN(limit_);
  }
  PlanCount(const PlanCount&) = delete;
  PlanCount& operator=(const PlanCount&) = delete;

 private:
  int limit_;
};

using Work = std::function<at::Tensor()>;

// Torch keeps the plan that it takes here for the thread, and so does everything after.
at::Tensor first_run(const Operation& operation, int plans, const Work& work) {
  constexpr int64_t kLeast = int64_t{64} << 20, kSlack = int64_t{16} << 20;
  const int64_t workspace = std::max(kLeast, operation.bytes() / 2);
  const PlanCount count(plans);
  at::getDeviceAllocator(at::kCUDA)->emptyCache();  // else plans could have what is free there
  try {
    at::empty({operation.bytes_made()}, operation.x.options().dtype(at::kByte));  // a place for the result
    const MemoryLimit limit(operation.x, workspace + kSlack);
    return work();
  } catch (const c10::Error&) {  // no plan is so modest
    return work();
  }
}

// The fewest plans to look at for one that is about as fast as the best of all.
int plans_needed(const Operation& operation, const Work& work) {
  constexpr double kAsFast = 1.03, kNoise = 0.002;  // milliseconds
  const double best = milliseconds_of(operation.x, [&] { work(); });
  for (const int plans : kFewer) {
    bool first = true;
    const double found = milliseconds_elsewhere(operation.x, [&] {
      const at::NoGradGuard no_grad;
      first ? first_run(operation, plans, work) : work();
      first = false;
    });
    if (found < best * kAsFast + kNoise) return plans;
  }
  return kAllPlans;
}

// `make_room` is called before plans are chosen, which takes memory that the step itself does not.
at::Tensor run(const Operation& operation, const Work& work, const std::function<void()>& make_room = {}) {
  thread_local std::unordered_set<uint64_t> settled;  // torch keeps its plans for each thread, too
  if (!at::globalContext().benchmarkCuDNN() || operation.how.groups != 1) return work();
  const uint64_t hash = hash_of(operation.numbers());
  if (settled.contains(hash) || is_captured(operation.x)) return work();
  settled.insert(hash);
  if (make_room) make_room();
  const bool remembers = kernels_are_timed() && at::globalContext().benchmarkLimitCuDNN() == kAllPlans;
  const std::string name = remembers ? operation.name() : std::string();
  const std::string known = name.empty() ? name : known_choice(name);
  constexpr size_t kDigits = 2;  // a file from elsewhere may say anything
  const bool is_known =
      !known.empty() && known.size() <= kDigits && known.find_first_not_of("0123456789") == std::string::npos;
  at::Tensor result = first_run(operation, is_known ? std::clamp(std::stoi(known), 1, kAllPlans) : kAllPlans, work);
  if (is_known || name.empty()) return result;
  result.reset();  // its memory is lent to the trials
  keep_choice(name, std::to_string(plans_needed(operation, work)));
  return work();
}

at::Tensor gradient(Way way, const at::Tensor& dy, const at::Tensor& x, const at::Tensor& weight,
                    const LibraryConv& how, const std::function<void()>& make_room = {}) {
  const bool of_x = way == Way::kInputGradient;
  const Work work = [&] {
    const auto [dx, dw, unused] =
        at::convolution_backward(dy, x, weight, at::OptionalIntArrayRef(), how.stride, how.padding, {1, 1, 1},
                                 how.transposed, how.output_padding, how.groups, {of_x, !of_x, false});
    return of_x ? dx : dw;
  };
  return run({way, x, weight, how}, work, make_room);
}

// Whether the gradient of an input, which cuDNN makes from its sizes, may have its memory: nobody reads it any more.
// What cuDNN does not take others of torch's kernels do, which might copy it first.
bool may_go(const at::Tensor& x, const at::Tensor& dy) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  return fused::is_ours_alone(x) && at::globalContext().userEnabledCuDNN() && std::max(x.numel(), dy.numel()) < kMost;
}

struct ConvCall : torch::CustomClassHolder {
  LibraryConv how;
  bool x_learns = false;
};
using ConvCallPtr = c10::intrusive_ptr<ConvCall>;

at::Tensor forward_of(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                      const LibraryConv& how) {
  return run({Way::kForward, x, weight, how}, [&] {
    return at::convolution(x, weight, bias, how.stride, how.padding, {1, 1, 1}, how.transposed, how.output_padding,
                           how.groups);
  });
}

struct Convolution : torch::autograd::Function<Convolution> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias, const ConvCallPtr& call) {
    context->save_for_backward({x, weight, bias.value_or(at::Tensor())});
    context->saved_data["call"] = c10::IValue::make_capsule(call);
    const std::optional<at::Tensor> added = bias ? std::optional(bias->detach()) : std::nullopt;
    return forward_of(x.detach(), weight.detach(), added, call->how);
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    variable_list result(4);
    if (!grads[0].defined()) return result;
    const auto capsule = context->saved_data["call"].toCapsule();
    const auto& call = static_cast<const ConvCall&>(*capsule);
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &weight = saved[1], &bias = saved[2];
    std::tie(result[0], result[1]) =
        library_gradients(grads[0], saved[0], weight, call.how, {call.x_learns, weight.requires_grad()});
    if (bias.defined() && bias.requires_grad()) result[2] = grads[0].sum({0, 2, 3, 4});
    return result;
  }
};

}  // namespace

at::Tensor library_convolution(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                               const LibraryConv& how) {
  const bool learns =
      at::GradMode::is_enabled() && (x.requires_grad() || weight.requires_grad() || (bias && bias->requires_grad()));
  if (!learns) return forward_of(x, weight, bias, how);
  const ConvCallPtr call = c10::make_intrusive<ConvCall>();
  call->how = how;
  call->x_learns = x.requires_grad();
  return Convolution::apply(x, weight, bias, call);
}

std::pair<at::Tensor, at::Tensor> library_gradients(const at::Tensor& dy, const at::Tensor& given,
                                                    const at::Tensor& given_weight, const LibraryConv& how,
                                                    WantedGradients wanted) {
  const at::NoGradGuard no_grad;
  const bool alone = may_go(given, dy);
  const at::Tensor x = given.detach(), weight = given_weight.detach();
  std::pair<at::Tensor, at::Tensor> result;
  // The smaller result first: it is there while the other one is made.
  if (wanted.weight) result.second = gradient(Way::kWeightGradient, dy, x, weight, how);
  if (wanted.x)
    result.first = gradient(Way::kInputGradient, dy, x, weight, how, [&] {
      if (alone) fused::free_memory(given);
    });
  return result;
}

}  // namespace vox::ops
