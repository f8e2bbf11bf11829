// What the loaded torch is, and a test of the operation that everything rests on: a convolution, forward and backward,
// held against the same sums in double precision.
#pragma once

#include <string>
#include <vector>

namespace vox {

struct ConvolutionTrial {
  std::string what;  // "float32 on the CPU"
  double milliseconds = 0;
  double error = 0;     // largest, relative to the largest value
  double allowed = 0;   // for this number format
  std::string problem;  // of a trial that threw; else empty
};

struct TorchFacts {
  std::string built_for, loaded;  // versions; `loaded` is empty where it cannot be told
  bool cuda_build = false;
  bool kernels = true;  // this program has its own CUDA kernels; without them it trains on the CPU
  int cuda = 0;         // runtime, 13000: 13.0
  int cudnn = 0;        // 91500: 9.15.0; 0: none
  int gpus = 0;         // that torch can use
  std::vector<ConvolutionTrial> trials;
};

TorchFacts torch_facts();  // without trials
std::vector<ConvolutionTrial> try_convolutions(const TorchFacts& torch);
// One convolution in bfloat16 on the CPU: for a child process, since it may die of an instruction.
void convolve_bfloat16();

}  // namespace vox
