// Names that --device takes.
#pragma once

#include <string>

namespace vox {

// cpu, cuda or cuda:N, whether this machine has it or not.
bool is_device_name(const std::string& name);
int gpu_number(const std::string& name);  // of a GPU's name

// What CUDA_VISIBLE_DEVICES is for a process that sees one GPU of those that this one sees. Error where there are
// fewer.
std::string visible_gpu(int number);
// From here on this process sees the GPU of that name alone, and it is the first: memory and kernels of every thread
// belong to it. Before anything asks for GPUs; the names of the first GPU and of the CPU change nothing.
void see_only(const std::string& name);
bool sees_one_gpu();  // by see_only()

}  // namespace vox
