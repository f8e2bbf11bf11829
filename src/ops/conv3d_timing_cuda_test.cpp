// Times of the Hopper convolutions beside torch's (cuDNN, benchmark mode), to be run by hand:
//   vox_cuda_test --gtest_also_run_disabled_tests --gtest_filter='Conv3dTiming*'
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <thread>

#include "kernels/norm_cuda.h"
#include "ops/conv3d_cuda_cases.h"

namespace vox::cuda {
namespace {

using namespace testing_conv3d;

// Median of five batches of back-to-back calls, after a rest: what ran before has warmed the GPU.
double milliseconds(const std::function<void()>& f) {
  std::vector<double> times;
  std::this_thread::sleep_for(std::chrono::milliseconds(60));
  for (int i = 0; i < 3; ++i) f();
  for (int batch = 0; batch < 5; ++batch) {
    constexpr int kCalls = 12;
    torch::cuda::synchronize();
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < kCalls; ++i) f();
    torch::cuda::synchronize();
    times.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count() /
                    kCalls);
  }
  std::sort(times.begin(), times.end());
  return times[2];
}
void report(const std::string& name, const Size& s, double flops, double ours, double torch, bool wins) {
  const double rate = flops * static_cast<double>(s.voxels()) / ours / 1e9;
  std::printf(
      "%-26s %lldx%lldx%lldx%lld  ours %.4f ms (%4.0f TFLOP/s)  torch "
      "%.4f ms  x%.2f %s\n",
      name.c_str(), static_cast<long long>(s.n), static_cast<long long>(s.z), static_cast<long long>(s.y),
      static_cast<long long>(s.x), ours, rate, torch, torch / ours, wins ? "wins" : "-");
}
bool wins(const ConvTimes& times) {
  return times.own_ms > 0 && times.own_ms < times.cudnn_ms;
}
void time_case(const Size& s, std::vector<int64_t> in, int64_t out) {
  const torch::NoGradGuard no_grad;
  std::vector<Tensor> parts;
  for (const int64_t channels : in) parts.push_back(activation(s, channels));
  const Tensor x = at::cat(parts, 1).contiguous(at::MemoryFormat::ChannelsLast3d), dy = activation(s, out);
  const Tensor weights = random_weights(out, x.size(1)), image = packed(weights, ConvWay::kForward);
  const double forward = milliseconds([&] { at::conv3d(x, weights, {}, kOnes, kOnes); });
  const double gradient = milliseconds([&] { weight_gradient(x, dy, weights); });
  const double flops = 54.0 * static_cast<double>(x.size(1) * out);
  const std::string channels = std::to_string(x.size(1)) + "->" + std::to_string(out);
  for (const bool prologue : {false, true}) {
    Case c{.size = s, .outputs = {out}};
    for (const int64_t one : in) c.inputs.push_back(make_input(s, one, prologue, 0.01));
    Conv3d conv = c.conv();
    const Tensor moments = at::empty({s.n * conv3d_moment_rows(conv) * 3 * out}, on_gpu(at::kFloat));
    const Tensor y = at::empty({s.voxels() * out}, on_gpu(at::kBFloat16)),
                 dw = at::empty({27 * out * x.size(1)}, on_gpu(at::kFloat));
    const Tensor workspace = at::empty({conv3d_workspace(conv)}, on_gpu(at::kByte));
    conv.output[0].y = y.data_ptr();
    for (float* m : {static_cast<float*>(nullptr), moments.data_ptr<float>()})
      report(channels + (prologue ? " norm" : "") + (m != nullptr ? " moments" : ""), s, flops,
             milliseconds([&] { conv3d_forward(conv, image.data_ptr(), m, nullptr); }), forward,
             wins(conv3d_forward_times(conv)));
    conv.output[0].y = dy.data_ptr();
    report(channels + (prologue ? " norm" : "") + " wgrad", s, flops,
           milliseconds([&] { conv3d_weight_gradient(conv, dw.data_ptr<float>(), workspace.data_ptr(), nullptr); }),
           gradient, wins(conv3d_weight_gradient_times(conv)));
  }
}
void time_first_layer(const Size& s) {
  const torch::NoGradGuard no_grad;
  const Tensor x = activation(s, 1), weights = random_weights(32, 1).contiguous(), dy = activation(s, 32);
  const Tensor y = at::empty({s.voxels() * 32}, on_gpu(at::kBFloat16)), dw = at::empty({32 * 27}, on_gpu(at::kFloat));
  Conv3d conv{s.n, s.z, s.y, s.x};
  conv.input[0] = {x.data_ptr(), 1};
  conv.output[0] = {y.data_ptr(), 32};
  const Tensor moments = at::empty({s.n * conv3d_first_layer_moment_rows(conv) * 96}, on_gpu(at::kFloat));
  const Tensor workspace = at::empty({conv3d_first_layer_workspace(conv)}, on_gpu(at::kByte));
  const double forward = milliseconds([&] { at::conv3d(x, weights, {}, kOnes, kOnes); });
  for (float* m : {static_cast<float*>(nullptr), moments.data_ptr<float>()})
    report(m != nullptr ? "1->32 moments" : "1->32", s, 54 * 32,
           milliseconds([&] { conv3d_first_layer(conv, weights.data_ptr(), m, nullptr); }), forward, true);
  conv.output[0].y = dy.data_ptr();
  report("1->32 wgrad", s, 54 * 32, milliseconds([&] {
           conv3d_first_layer_weight_gradient(conv, dw.data_ptr<float>(), workspace.data_ptr(), nullptr);
         }),
         milliseconds([&] { weight_gradient(x, dy, weights); }), true);
}

// A data gradient and the sums that a norm's backward takes of it: by a pass of their own, and on the way.
void time_norm_sums(const Size& s, int64_t in, int64_t out) {
  const Tensor dy = activation(s, in), x = activation(s, out),
               image = packed(random_weights(in, out), ConvWay::kGradient);
  const Tensor da = at::empty_like(x), state = at::rand({4, s.n, out}, on_gpu(at::kFloat));
  const Shape5 shape{s.n, s.z, s.y, s.x, out};
  Conv3d conv{s.n, s.z, s.y, s.x};
  conv.input[0] = {dy.data_ptr(), in};
  conv.output[0] = {da.data_ptr(), out};
  const int64_t rows = std::max(conv3d_moment_rows(conv), norm_grad_rows(shape));
  const Tensor partials = at::empty({s.n * rows * 2 * out}, on_gpu(at::kFloat));
  const auto plane = [&](int64_t i) { return state[i].data_ptr<float>(); };
  const NormGradInput input{.dy = da.data_ptr(),
                            .x = x.data_ptr(),
                            .shape = shape,
                            .state = {plane(0), plane(1), plane(2), plane(3)},
                            .act = {.kind = ActKind::kLeakyRelu}};
  const auto run = [&] { conv3d_forward(conv, image.data_ptr(), nullptr, nullptr); };
  const auto run_pass = [&] { norm_grad_sums(input, partials.data_ptr<float>(), nullptr); };
  const double alone = milliseconds(run), apart = milliseconds([&] { run(), run_pass(); });
  conv.output[0].norm = {x.data_ptr(), plane(2), plane(3), plane(0), plane(1), 0.01f, partials.data_ptr<float>()};
  const double together = milliseconds(run);
  std::printf("%3lld->%-3lld %lldx%lldx%lldx%lld  data gradient %.4f ms, then sums %.4f, with sums %.4f\n",
              static_cast<long long>(in), static_cast<long long>(out), static_cast<long long>(s.n),
              static_cast<long long>(s.z), static_cast<long long>(s.y), static_cast<long long>(s.x), alone, apart,
              together);
}

TEST(Conv3dTimingCuda, DISABLED_NormSums) {
  if (!torch::cuda::is_available() || !conv3d_available()) GTEST_SKIP() << "needs a Hopper GPU";
  const Size full{2, 128, 128, 128}, half{2, 64, 64, 64}, quarter{2, 32, 32, 32}, scroll{1, 72, 136, 136};
  time_norm_sums(full, 32, 32);
  time_norm_sums(full, 64, 32);
  time_norm_sums(full, 32, 64);
  time_norm_sums(scroll, 32, 32);
  time_norm_sums(half, 64, 64);
  time_norm_sums(half, 128, 64);
  time_norm_sums(quarter, 128, 128);
  time_norm_sums({7, 128, 128, 128}, 32, 32);
  time_norm_sums({4, 112, 112, 112}, 32, 32);
  time_norm_sums({4, 56, 56, 56}, 64, 64);
}

TEST(Conv3dTimingCuda, DISABLED_Table) {
  if (!torch::cuda::is_available() || !conv3d_available()) GTEST_SKIP() << "needs a Hopper GPU";
  at::globalContext().setBenchmarkCuDNN(true);
  const Size full{2, 128, 128, 128}, half{2, 64, 64, 64}, scroll{1, 72, 136, 136}, quarter{2, 32, 32, 32};
  time_first_layer(full);
  time_case(full, {32}, 32);
  time_case(full, {32, 32}, 32);
  time_case(full, {32}, 64);
  for (const Size& s : {half, scroll, quarter}) {
    time_case(s, {32}, 32);
    time_case(s, {64}, 64);
  }
  time_case(half, {64}, 128);
  time_case(half, {64, 64}, 64);
  time_case(quarter, {128}, 128);
}

}  // namespace
}  // namespace vox::cuda
