// How fast the passes of kernels/norm_cuda.h are; beside them a copy, which moves as many bytes a second as can be.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstdio>
#include <functional>

#include "kernels/cuda_test_memory.h"
#include "ops/norm_cuda_cases.h"

namespace vox::cuda::testing_norm {
namespace {

void time(const char* name, const Case& c, double tensors, const std::function<void()>& run) {
  constexpr int kRuns = 60;
  const double seconds = 1e-3 * milliseconds_of(kRuns, run);
  const double bytes = tensors * 2 * static_cast<double>(c.shape.count());
  std::printf("%-28s %dx%dx%d^3 %8.4f ms %6.2f TB/s\n", name, int(c.shape.n), int(c.shape.c), int(c.shape.z),
              seconds * 1e3, bytes / seconds / 1e12);
}

TEST(NormCuda, DISABLED_Timing) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
  constexpr int64_t kSizes[][3] = {{2, 32, 128}, {2, 64, 64}, {2, 128, 32}, {2, 320, 8}, {7, 32, 128}, {4, 64, 56}};
  for (const auto& [n, channels, size] : kSizes) {
    Case c{.shape = {n, size, size, size, channels}, .act = n == 4 ? ActKind::kPrelu : ActKind::kLeakyRelu};
    const Layer layer(c);
    const NormState state = layer.norm_state();
    float* const moment = Layer::floats_of(layer.moment_partials);
    float* const grad = Layer::floats_of(layer.grad_partials);
    float* const coefficients = Layer::floats_of(layer.coefficients);
    const NormGradResult result{Layer::floats_of(layer.dgamma), Layer::floats_of(layer.dbeta),
                                Layer::floats_of(layer.dslope), coefficients};
    const int64_t rows = moment_rows(c.shape);
    const Scalar type = Scalar::kBFloat16;
    layer.forward();
    time("copy (at::copy_)", c, 2, [&] { layer.y.copy_(layer.x); });
    time("moments", c, 1, [&] { moments(layer.x.data_ptr(), type, c.shape, moment, nullptr); });
    time("finish_moments", c, 0, [&] { finish_moments(moment, rows, c.shape, layer.rule(), state, nullptr); });
    time("apply", c, 2, [&] {
      apply_norm(layer.x.data_ptr(), nullptr, layer.y.data_ptr(), type, c.shape, state.scale, state.shift, layer.act(),
                 nullptr);
    });
    time("apply + residual", c, 3, [&] {
      apply_norm(layer.x.data_ptr(), layer.dy.data_ptr(), layer.y.data_ptr(), type, c.shape, state.scale, state.shift,
                 layer.act(), nullptr);
    });
    time("grad sums", c, 2, [&] { norm_grad_sums(layer.grad_input(), grad, nullptr); });
    time("finish_norm_grad", c, 0,
         [&] { finish_norm_grad(grad, rows, layer.grad_input(), layer.rule(), false, result, nullptr); });
    time("grad apply", c, 3,
         [&] { norm_grad_apply(layer.grad_input(), coefficients, layer.dx.data_ptr(), nullptr, nullptr); });
  }
}

}  // namespace
}  // namespace vox::cuda::testing_norm
