#include "ops/checkpoint.h"

#include <torch/torch.h>

#include <utility>

#include "base/error.h"

namespace vox::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

thread_local bool in_second_run = false;

class SecondRun {
 public:
  SecondRun() : before_(in_second_run) { in_second_run = true; }
  ~SecondRun() { in_second_run = before_; }
  SecondRun(const SecondRun&) = delete;
  SecondRun& operator=(const SecondRun&) = delete;

 private:
  bool before_;
};

struct SegmentHolder : torch::CustomClassHolder {
  SegmentHolder(Segment s, size_t inputs) : segment(std::move(s)), input_count(inputs) {}
  Segment segment;
  size_t input_count;
};

struct Checkpoint : torch::autograd::Function<Checkpoint> {
  // `tensors` holds the inputs, then the parameters: all must be arguments for autograd to know of them.
  static variable_list forward(AutogradContext* context, const c10::intrusive_ptr<SegmentHolder>& holder,
                               at::TensorList tensors) {
    context->saved_data["segment"] = c10::IValue::make_capsule(holder);
    context->save_for_backward(tensors.vec());
    return holder->segment(tensors.slice(0, holder->input_count).vec());
  }

  static variable_list backward(AutogradContext* context, variable_list output_grads) {
    const auto capsule = context->saved_data["segment"].toCapsule();
    const auto& holder = static_cast<SegmentHolder&>(*capsule);
    const variable_list saved = context->get_saved_variables();
    variable_list inputs, sources;
    for (size_t i = 0; i < saved.size(); ++i) {
      const bool is_input = i < holder.input_count;
      at::Tensor tensor = is_input ? saved[i].detach().set_requires_grad(saved[i].requires_grad()) : saved[i];
      if (tensor.requires_grad()) sources.push_back(tensor);
      if (is_input) inputs.push_back(std::move(tensor));
    }
    variable_list outputs;
    {
      const at::AutoGradMode with_grad(true);
      const SecondRun second_run;
      outputs = holder.segment(inputs);
    }
    const variable_list found = torch::autograd::grad(outputs, sources, output_grads, std::nullopt, false, true);
    variable_list grads{at::Tensor()};  // of the holder
    size_t next = 0;
    for (const at::Tensor& tensor : saved) grads.push_back(tensor.requires_grad() ? found[next++] : at::Tensor());
    return grads;
  }
};

}  // namespace

bool recomputing() {
  return in_second_run;
}

std::vector<at::Tensor> checkpoint(const Segment& segment, const std::vector<at::Tensor>& inputs,
                                   const std::vector<at::Tensor>& parameters) {
  if (!at::GradMode::is_enabled()) return segment(inputs);
  variable_list tensors(inputs);
  tensors.insert(tensors.end(), parameters.begin(), parameters.end());
  return Checkpoint::apply(c10::make_intrusive<SegmentHolder>(segment, inputs.size()), at::TensorList(tensors));
}

}  // namespace vox::ops
