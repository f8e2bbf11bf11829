// A checkpoint that leaves the GPU while the training goes on.
#include "train/checkpoint.h"

#include <gtest/gtest.h>
#include <torch/torch.h>
#include <unistd.h>

#include <thread>

#include "base/error.h"
#include "base/file.h"
#include "train/precision.h"

namespace vox {
namespace {

at::Tensor stored_tensor(const CheckpointFile& file, const std::string& name) {
  for (const TensorToStore& one : file.tensors)
    if (one.name == name) return at::from_blob(const_cast<std::byte*>(one.bytes.data()), one.shape, at::kFloat);
  ADD_FAILURE() << name << " is not in the file";
  return at::zeros({1});
}

// Weights larger than what is brought over at once, smaller ones, single numbers.
TEST(CheckpointCuda, HoldsWhatWasThereWhenItWasTaken) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
  const at::NoGradGuard no_grad;
  ParameterSet parameters;
  int count = 0;
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{300, 601, 3, 3, 3},
                                            {257, 511, 4, 4, 4},
                                            {7, 5, 3, 3, 3},
                                            {16, 64, 16, 16, 16},
                                            {1, 1, 1, 1, 1}})
    parameters.add({concat(count++, ".weight"), ParameterKind::kConvWeight, shape});
  for (Parameter& one : parameters.all()) parameters.load(one.name(), at::randn(one.spec.shape));
  parameters.to(at::Device(at::kCUDA, 0));
  parameters.to(at::MemoryFormat::ChannelsLast3d);
  TrainingOptions options;
  options.optimizer = "adam";
  Optimizer optimizer(options, parameters, parse_precision("bf16-mixed"));
  std::vector<at::Tensor> before;
  for (const Parameter& one : parameters.all()) before.push_back(one.master.detach().cpu().contiguous());

  const fs::path path = fs::temp_directory_path() / concat("vox_checkpoint_cuda_", getpid());
  const CheckpointFolder folder(path);
  const Snapshot snapshot = take_snapshot(parameters, optimizer);
  std::thread writer([&] { write_snapshot(folder, snapshot, {}, {}); });
  for (int step = 0; step < 100; ++step)
    for (Parameter& one : parameters.all()) one.master.detach().add_(1);
  writer.join();
  const CheckpointFile file = read_checkpoint_file(folder.last());
  for (size_t i = 0; i < before.size(); ++i)
    EXPECT_TRUE(at::equal(stored_tensor(file, "model." + parameters.all()[i].name()), before[i])) << i;
  fs::remove_all(path);
}

}  // namespace
}  // namespace vox
