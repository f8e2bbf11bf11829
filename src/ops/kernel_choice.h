// Which kernels a GPU runs where there is a choice.
#pragma once

#include <functional>
#include <map>
#include <string>

namespace vox::ops {

// system.kernel_arch: "auto" takes our own convolutions on the GPUs they are written for, "generic" cuDNN everywhere.
void set_kernel_arch(const std::string& arch);
bool own_convolutions_allowed();

// Where our kernel and cuDNN's are expected to be about as fast, both are timed, once for each shape, and the choice is
// kept: "own" or "cudnn" by the GPU, its libraries and the shape. kFixed, as at the start, takes what is expected.
enum class KernelTiming { kFixed, kOncePerShape };
using KernelChoices = std::map<std::string, std::string>;
void set_kernel_timing(KernelTiming timing);
void adopt_kernel_choices(const KernelChoices& choices);  // to those that are known
KernelChoices kernel_choices();
// `own_is_faster` is called, and its answer kept, where kOncePerShape is set and nothing is known yet; without it,
// then, the answer is what is expected, and nothing is kept.
bool choose_own(const std::string& shape, bool expected, const std::function<bool()>& own_is_faster);

// The same for choices of another kind, by whoever makes them: what is known, empty for nothing, and what to keep.
bool kernels_are_timed();
std::string known_choice(const std::string& name);
void keep_choice(const std::string& name, const std::string& choice);

}  // namespace vox::ops
