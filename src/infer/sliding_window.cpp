#include "infer/sliding_window.h"

#include <torch/torch.h>

#include <algorithm>
#include <optional>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/queue.h"
#include "base/span.h"
#include "base/start_thread.h"
#include "infer/slab_blend.h"
#include "nets/network.h"

namespace vox {
namespace {

constexpr size_t kBatchesAhead = 1, kPiecesBehind = 1;  // beside the one at work on either side
constexpr int64_t kPieceBytes = 4 << 20;                // of finished slices handed over at once

struct Layer {  // windows of equal z, or none: slices that no window touches
  int64_t z = 0, next_z = 0;
  bool has_windows = false;
};

WindowPlaces places_in(const Extent3& volume, const Box3& region, const SlidingWindowOptions& options) {
  return window_places(volume, options.window, options.overlap, region, options.shift);
}

// Of slices from `first_slice` on. None goes on for longer than a window is deep before the next begins.
std::vector<Layer> layers_of(const WindowPlaces& places, int64_t slices, int64_t window_z, int64_t first_slice) {
  std::vector<Layer> layers;
  const auto add_without_windows = [&](int64_t z, int64_t until) {
    for (; z < until; z += window_z) layers.push_back({z, 0, false});
  };
  int64_t covered = first_slice;
  for (const int64_t z : places.z) {
    if (z + window_z <= first_slice) continue;
    add_without_windows(covered, z);
    layers.push_back({z, 0, true});
    covered = z + window_z;
  }
  add_without_windows(covered, slices);
  for (size_t i = 0; i < layers.size(); ++i)
    layers[i].next_z = i + 1 < layers.size() ? std::max<int64_t>(0, layers[i + 1].z) : slices;
  return layers;
}

struct WindowBatch {
  std::vector<Extent3> begins;
  at::Tensor image;            // undefined where no window is left
  int64_t passed = 0;          // windows of the layer that are read or skipped by now
  bool ends_layer = false;     // batches never hold windows of two layers: a continued run has the same ones
  int64_t finished_until = 0;  // where it does: slices before this are finished
};

class Reader {  // of one layer after the other
 public:
  Reader(const WindowPlaces& places, const WindowSource& source, const SlidingWindowOptions& options,
         BoundedQueue<WindowBatch>& out)
      : places_(places), source_(source), options_(options), out_(out) {}

  bool read(const Layer& layer) {  // false once nobody wants more
    WindowBatch batch;
    if (!layer.has_windows) {
      batch.ends_layer = true;
      batch.finished_until = layer.next_z;
      return out_.push(std::move(batch));
    }
    const std::vector<Extent3> begins = places_.layer(layer.z);
    for (size_t i = 0; i < begins.size(); ++i) {
      if (wanted(begins[i])) add(begins[i], batch);
      ++batch.passed;
      const bool last = i + 1 == begins.size();
      if (!last && static_cast<int64_t>(batch.begins.size()) < options_.batch_size) continue;
      batch.ends_layer = last;
      batch.finished_until = layer.next_z;
      if (batch.image.defined()) batch.image = batch.image.narrow(0, 0, static_cast<int64_t>(batch.begins.size()));
      if (!out_.push(std::exchange(batch, {}))) return false;
    }
    return true;
  }

 private:
  bool wanted(const Extent3& begin) const { return !source_.wanted || source_.wanted(begin); }

  void add(const Extent3& begin, WindowBatch& batch) const {
    const Span span("read window");
    const Extent3& window = options_.window;
    if (!batch.image.defined())
      batch.image = at::empty({options_.batch_size, source_.channels, window.z, window.y, window.x});
    const int64_t voxels = window.voxels(), place = static_cast<int64_t>(batch.begins.size()) * source_.channels;
    float* const out = batch.image.data_ptr<float>() + place * voxels;
    for (int64_t channel = 0; channel < source_.channels; ++channel)
      source_.read(begin, channel, out + channel * voxels);
    const auto reaches = [&](float value) { return value >= *source_.skip_below; };
    if (source_.skip_below && std::none_of(out, out + source_.channels * voxels, reaches)) return;
    batch.begins.push_back(begin);
  }

  const WindowPlaces& places_;
  const WindowSource& source_;
  const SlidingWindowOptions& options_;
  BoundedQueue<WindowBatch>& out_;
};

struct Piece {  // finished slices on their way out
  int64_t z_begin = 0, z_end = 0;
  at::Tensor logits;
  bool may_start_here = false;  // a continued run may start behind it
};

using ReadBatches = std::function<void(BoundedQueue<WindowBatch>& out)>;  // returns once nobody wants more

class Stages {  // the threads before and behind the computation; they end with it, however it ends
 public:
  Stages(const ReadBatches& read, const SlabRun& run) : writer_(start_thread([this, &run] { write_all(run); })) {
    try {
      reader_ = start_thread([this, &read] { read_all(read); });
    } catch (...) {
      end();
      throw;
    }
  }
  ~Stages() { end(); }
  void finish() {  // waits for the writer; what went wrong there is thrown here
    pieces.close();
    writer_.join();
    if (write_error_) std::rethrow_exception(write_error_);
  }

  BoundedQueue<WindowBatch> batches{kBatchesAhead};
  BoundedQueue<Piece> pieces{kPiecesBehind};

 private:
  void read_all(const ReadBatches& read) {
    try {
      read(batches);
      batches.close();
    } catch (...) {
      batches.close(std::current_exception());
    }
  }
  void write_all(const SlabRun& run) {
    try {
      while (const std::optional<Piece> piece = pieces.pop()) {
        const Span span("write slices");
        run.write({piece->z_begin, piece->z_end, piece->logits.size(0), piece->logits.const_data_ptr<float>()});
        if (piece->may_start_here && run.written) run.written(piece->z_end);
      }
    } catch (...) {
      write_error_ = std::current_exception();
      pieces.close();
    }
  }

  void end() {
    batches.close();
    pieces.close();
    for (std::thread* thread : {&reader_, &writer_})
      if (thread->joinable()) thread->join();
  }

  std::exception_ptr write_error_;
  std::thread writer_, reader_;
};

int64_t slices_a_piece(const Extent3& volume, int64_t channels) {
  return std::clamp<int64_t>(kPieceBytes / (channels * volume.y * volume.x * 4), 1, volume.z);
}

class Computation {
 public:
  Computation(const std::vector<Network*>& networks, const WindowSource& source, const SlidingWindowOptions& options,
              const SlabRun& run)
      : networks_(networks),
        source_(source),
        options_(options),
        run_(run),
        variants_(variants_of(options.window, options.augment, options.mirroring)),
        places_(places_in(source.extent, source.region.value_or(whole(source.extent)), options)),
        layers_(layers_of(places_, source.extent.z, options.window.z, run.first_slice)),
        device_(networks.front()->parameters().device()),
        taken_(std::max<int64_t>(0, layers_.empty() ? 0 : layers_.front().z)) {
    for (const Layer& layer : layers_) total_ += layer.has_windows ? places_.in_layer() : 0;
  }

  void run() {
    const ReadBatches read = [&](BoundedQueue<WindowBatch>& batches) {
      Reader reader(places_, source_, options_, batches);
      for (const Layer& layer : layers_)
        if (!reader.read(layer)) return;
    };
    Stages stages(read, run_);
    while (const std::optional<WindowBatch> batch = stages.batches.pop()) {
      if (!batch->begins.empty()) compute(*batch);
      done_ += batch->passed;
      if (batch->ends_layer && !hand_over(batch->finished_until, stages.pieces)) break;
      if (run_.progress) run_.progress(done_, total_);
    }
    stages.finish();
  }

 private:
  void compute(const WindowBatch& batch) {
    const Span span("window");
    const at::Tensor output =
        forward_variants(networks_, batch.image.to(device_), variants_, options_.batch_size).contiguous();
    if (!blend_) blend_.emplace(source_.extent, options_.window, options_.blend, output.size(1), device_);
    for (size_t i = 0; i < batch.begins.size(); ++i) blend_->add(batch.begins[i], output[static_cast<int64_t>(i)]);
  }

  // A first layer without a window tells nothing of the channels: one window of zeros does.
  void make_blend() {
    const Extent3& window = options_.window;
    const at::Tensor nothing = at::zeros({1, source_.channels, window.z, window.y, window.x}).to(device_);
    const int64_t channels = networks_.front()->forward(nothing).front().size(1);
    blend_.emplace(source_.extent, window, options_.blend, channels, device_);
  }

  bool hand_over(int64_t until, BoundedQueue<Piece>& pieces) {
    if (!blend_) make_blend();
    const int64_t known = std::clamp(run_.first_slice, taken_, until);
    if (known > taken_) blend_->drop(taken_, known);
    taken_ = std::max(taken_, known);
    while (taken_ < until) {
      Piece piece{.z_begin = taken_, .logits = {}};
      if (piece_slices_ == 0) piece_slices_ = slices_a_piece(source_.extent, channels());
      piece.z_end = std::min(until, taken_ + piece_slices_);
      piece.logits = blend_->take(piece.z_begin, piece.z_end).to(at::kCPU);
      piece.may_start_here = piece.z_end == until;
      taken_ = piece.z_end;
      if (!pieces.push(std::move(piece))) return false;  // the writer failed, and will say so
    }
    return true;
  }
  int64_t channels() const { return blend_->channels(); }

  const std::vector<Network*>& networks_;
  const WindowSource& source_;
  const SlidingWindowOptions& options_;
  const SlabRun& run_;
  const std::vector<Variant> variants_;
  const WindowPlaces places_;
  const std::vector<Layer> layers_;
  const at::Device device_;
  std::optional<SlabBlend> blend_;
  int64_t taken_ = 0, piece_slices_ = 0, done_ = 0, total_ = 0;
};

}  // namespace

Extent3 common_window(const std::vector<Network*>& networks, Extent3 window) {
  for (Extent3 before{}; before != window;) {
    before = window;
    for (const Network* network : networks) window = network->round_up(window);
  }
  return window;
}

void predict_slabs(const std::vector<Network*>& networks, const WindowSource& source,
                   const SlidingWindowOptions& options, const SlabRun& run) {
  const at::NoGradGuard no_grad;
  Computation(networks, source, options, run).run();
}

at::Tensor predict_resident(const std::vector<Network*>& networks, const at::Tensor& volume,
                            const SlidingWindowOptions& options) {
  const at::NoGradGuard no_grad;
  const Extent3 extent{volume.size(1), volume.size(2), volume.size(3)}, &window = options.window;
  for (int a = 0; a < 3; ++a) VOX_ASSERT(extent[a] >= window[a] && options.shift[a] == 0);
  const std::vector<Variant> variants = variants_of(window, options.augment, options.mirroring);
  std::optional<SlabBlend> blend;
  at::Tensor result;
  int64_t taken = 0;
  const WindowPlaces places = places_in(extent, whole(extent), options);
  for (const Layer& layer : layers_of(places, extent.z, window.z, 0)) {
    const std::vector<Extent3> begins = places.layer(layer.z);
    for (size_t first = 0; first < begins.size(); first += static_cast<size_t>(options.batch_size)) {
      const size_t last = std::min(begins.size(), first + static_cast<size_t>(options.batch_size));
      std::vector<at::Tensor> windows;
      for (size_t i = first; i < last; ++i) {
        const Extent3& begin = begins[i];
        windows.push_back(
            volume.narrow(1, begin.z, window.z).narrow(2, begin.y, window.y).narrow(3, begin.x, window.x));
      }
      const at::Tensor output =
          forward_variants(networks, at::stack(windows), variants, options.batch_size).contiguous();
      if (!blend) {
        blend.emplace(extent, window, options.blend, output.size(1), volume.device());
        result = at::empty({output.size(1), extent.z, extent.y, extent.x}, output.options());
      }
      for (size_t i = first; i < last; ++i) blend->add(begins[i], output[static_cast<int64_t>(i - first)]);
    }
    result.narrow(1, taken, layer.next_z - taken).copy_(blend->take(taken, layer.next_z));
    taken = layer.next_z;
  }
  return result;
}

int64_t blending_bytes(const WindowSource& source, const SlidingWindowOptions& options, int64_t output_channels) {
  const int64_t slice = source.extent.y * source.extent.x * 4, window = options.window.voxels() * 4;
  const int64_t ring = (output_channels + 1) * std::min(source.extent.z, options.window.z) * slice;
  const int64_t piece = slices_a_piece(source.extent, output_channels) * output_channels * slice;
  const auto pieces = static_cast<int64_t>(kPiecesBehind) + 3, batches = static_cast<int64_t>(kBatchesAhead) + 2;
  // A variant is turned there and back beside the sum of all of them.
  const int64_t variants = options.augment == Augment::kNone ? 0 : 1;
  const int64_t inputs = (batches + 2 * variants) * options.batch_size * source.channels * window;
  const int64_t outputs = (2 + variants) * options.batch_size * output_channels * window;
  return ring + pieces * piece + inputs + outputs + 2 * window;
}

Logits predict_logits(Network& network, const WindowSource& source, const SlidingWindowOptions& options,
                      const std::function<void(int64_t, int64_t)>& done) {
  SlidingWindowOptions rounded = options;
  rounded.window = network.round_up(options.window);
  Logits result{0, source.extent, {}};
  const int64_t slice = source.extent.y * source.extent.x;
  const auto write = [&](const Slab& slab) {
    if (result.channels == 0) {
      result.channels = slab.channels;
      result.data = Buffer(slab.channels * source.extent.voxels() * 4);
    }
    const int64_t values = (slab.z_end - slab.z_begin) * slice;
    for (int64_t channel = 0; channel < slab.channels; ++channel)
      std::copy_n(slab.logits + channel * values, values,
                  result.data.as<float>() + channel * source.extent.voxels() + slab.z_begin * slice);
  };
  predict_slabs({&network}, source, rounded, {.write = write, .progress = done});
  return result;
}

}  // namespace vox
