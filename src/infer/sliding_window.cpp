#include "infer/sliding_window.h"

#include <torch/torch.h>

#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/span.h"
#include "nets/network.h"

namespace vox {
namespace {

std::vector<int64_t> axis_begins(int64_t size, int64_t window, double overlap) {
  if (size <= window) return {-((window - size) / 2)};
  const double step = std::max(1.0, static_cast<double>(window) * (1 - overlap));
  const int64_t count = static_cast<int64_t>(std::ceil(static_cast<double>(size - window) / step)) + 1;
  const double even = static_cast<double>(size - window) / static_cast<double>(count - 1);
  std::vector<int64_t> begins;
  for (int64_t i = 0; i < count; ++i) begins.push_back(std::llround(even * static_cast<double>(i)));
  return begins;
}

std::vector<double> axis_weights(int64_t size, Blend blend) {
  std::vector<double> weights(static_cast<size_t>(size), 1.0);
  if (blend == Blend::kConstant) return weights;
  const double centre = static_cast<double>(size - 1) / 2, sigma = static_cast<double>(size) / 8;
  for (int64_t i = 0; i < size; ++i) {
    const double offset = (static_cast<double>(i) - centre) / sigma;
    weights[static_cast<size_t>(i)] = std::exp(-0.5 * offset * offset);
  }
  return weights;
}

class Blender {
 public:
  Blender(const Extent3& extent, const Extent3& window, Blend blend)
      : extent_(extent), window_(window), weights_(blend_weights(window, blend)), weight_sum_(extent.voxels() * 4) {
    std::memset(weight_sum_.data(), 0, static_cast<size_t>(weight_sum_.size()));
  }

  void add(const Extent3& begin, const float* logits, int64_t channels) {
    if (sum_.channels == 0) start(channels);
    const Box3 inside = intersect({begin, begin + window_}, whole(extent_));
    const int64_t slices = inside.end.z - inside.begin.z;
    at::parallel_for(0, slices * (channels + 1), 1, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) add_slice(begin, inside, logits, i / slices, inside.begin.z + i % slices);
    });
  }

  Logits finish() {
    float* sum = sum_.data.as<float>();
    const float* weight = weight_sum_.as<float>();
    const int64_t voxels = extent_.voxels();
    at::parallel_for(0, sum_.channels * voxels, 1 << 16, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) sum[i] /= weight[i % voxels];
    });
    return std::move(sum_);
  }

 private:
  void start(int64_t channels) {
    sum_ = {channels, extent_, Buffer(channels * extent_.voxels() * 4)};
    std::memset(sum_.data.data(), 0, static_cast<size_t>(sum_.data.size()));
  }

  // Channel `channels` is the sum of the weights.
  void add_slice(const Extent3& begin, const Box3& inside, const float* logits, int64_t channel, int64_t z) {
    const bool is_weight = channel == sum_.channels;
    float* out = is_weight ? weight_sum_.as<float>() : sum_.data.as<float>() + channel * extent_.voxels();
    for (int64_t y = inside.begin.y; y < inside.end.y; ++y) {
      const int64_t from = ((z - begin.z) * window_.y + (y - begin.y)) * window_.x - begin.x;
      const int64_t to = (z * extent_.y + y) * extent_.x;
      const float* values = logits + channel * window_.voxels();
      for (int64_t x = inside.begin.x; x < inside.end.x; ++x) {
        const float weight = weights_[static_cast<size_t>(from + x)];
        out[to + x] += is_weight ? weight : weight * values[from + x];
      }
    }
  }

  Extent3 extent_, window_;
  std::vector<float> weights_;
  Buffer weight_sum_;
  Logits sum_;
};

at::Tensor read_windows(const WindowSource& source, const Extent3& window, const Extent3* begins, int64_t count) {
  at::Tensor batch = at::empty({count, source.channels, window.z, window.y, window.x});
  float* out = batch.data_ptr<float>();
  for (int64_t i = 0; i < count; ++i)
    for (int64_t channel = 0; channel < source.channels; ++channel, out += window.voxels())
      source.read(begins[i], channel, out);
  return batch;
}

// The outputs of mirrored windows, mirrored back, are averaged; one mirroring after the other, so that memory stays.
at::Tensor forward_windows(Network& network, const at::Tensor& image, bool mirrors) {
  at::Tensor sum = network.forward(image).front().to(at::kFloat);
  if (!mirrors) return sum;
  for (int chosen = 1; chosen < 8; ++chosen) {
    std::vector<int64_t> axes;
    for (int axis = 0; axis < 3; ++axis)
      if (chosen >> axis & 1) axes.push_back(2 + axis);
    sum += network.forward(image.flip(axes)).front().to(at::kFloat).flip(axes);
  }
  return sum / 8;
}

}  // namespace

Blend blend_from_name(const std::string& name) {
  VOX_CHECK(name == "gaussian" || name == "constant", "inference.blend is \"", name, "\"; known: gaussian constant");
  return name == "gaussian" ? Blend::kGaussian : Blend::kConstant;
}

std::vector<Extent3> window_begins(const Extent3& volume, const Extent3& window, double overlap) {
  VOX_CHECK(overlap >= 0 && overlap < 1, "the overlap of windows is ", overlap, "; it must be at least 0 and below 1");
  std::vector<Extent3> begins;
  for (const int64_t z : axis_begins(volume.z, window.z, overlap))
    for (const int64_t y : axis_begins(volume.y, window.y, overlap))
      for (const int64_t x : axis_begins(volume.x, window.x, overlap)) begins.push_back({z, y, x});
  return begins;
}

std::vector<float> blend_weights(const Extent3& window, Blend blend) {
  constexpr double kSmallest = 1e-3;  // so that a voxel seen by one window's corner alone is still divided safely
  const std::vector<double> z = axis_weights(window.z, blend), y = axis_weights(window.y, blend),
                            x = axis_weights(window.x, blend);
  std::vector<float> weights;
  weights.reserve(static_cast<size_t>(window.voxels()));
  for (const double at_z : z)
    for (const double at_y : y)
      for (const double at_x : x) weights.push_back(static_cast<float>(std::max(kSmallest, at_z * at_y * at_x)));
  return weights;
}

Logits predict_logits(Network& network, const WindowSource& source, const SlidingWindowOptions& options,
                      const std::function<void(int64_t, int64_t)>& done) {
  const at::NoGradGuard no_grad;
  const Extent3 window = network.round_up(options.window);
  const std::vector<Extent3> begins = window_begins(source.extent, window, options.overlap);
  const int64_t total = static_cast<int64_t>(begins.size());
  const at::Device device = network.parameters().device();
  Blender blender(source.extent, window, options.blend);
  for (int64_t first = 0; first < total; first += options.batch_size) {
    const int64_t count = std::min(options.batch_size, total - first);
    const at::Tensor image = read_windows(source, window, begins.data() + first, count).to(device);
    const Span span("window");
    const at::Tensor logits = forward_windows(network, image, options.mirrors).to(at::kCPU).contiguous();
    const int64_t channels = logits.size(1);
    for (int64_t i = 0; i < count; ++i)
      blender.add(begins[static_cast<size_t>(first + i)],
                  logits.const_data_ptr<float>() + i * channels * window.voxels(), channels);
    if (done) done(first + count, total);
  }
  return blender.finish();
}

}  // namespace vox
