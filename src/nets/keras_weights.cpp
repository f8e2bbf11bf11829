// The weights of the OpenKBP network as Keras stores them: layers are called conv3d, conv3d_1, ... in the order in
// which they were made; kernels are [z, y, x, in, out], of transposed convolutions [z, y, x, out, in].
#include <torch/torch.h>

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "nets/weights_import.h"

namespace vox {
namespace {

struct KerasArray {
  std::string layer;  // "conv3d_transpose_2"
  std::string leaf;   // "kernel:0" of older files, "0" of newer ones
};

// "model_weights/conv3d/conv3d/kernel:0", "layers/conv3d/vars/0": the layer is the last folder that names one.
KerasArray parse(const std::string& name) {
  const std::vector<std::string> parts = split(name, '/');
  KerasArray array{.layer = "", .leaf = parts.back()};
  for (size_t i = 0; i + 1 < parts.size(); ++i) {
    if (parts[i].starts_with("conv3d") || parts[i].starts_with("batch_normalization")) array.layer = parts[i];
  }
  return array;
}

struct Layers {
  std::vector<std::string> convs, transposed, norms;  // names, in the order in which they were made
};

Layers layers_of(const ShapeMap& shapes) {
  Layers layers;
  for (const auto& [name, shape] : shapes) {
    const std::string layer = parse(name).layer;
    if (layer.empty()) continue;
    std::vector<std::string>& list = layer.starts_with("conv3d_transpose") ? layers.transposed
                                     : layer.starts_with("conv3d")         ? layers.convs
                                                                           : layers.norms;
    if (std::find(list.begin(), list.end(), layer) == list.end()) list.push_back(layer);
  }
  for (auto* list : {&layers.convs, &layers.transposed, &layers.norms}) {
    std::sort(list->begin(), list->end(), natural_less);
  }
  return layers;
}

int position(const std::vector<std::string>& list, const std::string& layer) {
  return static_cast<int>(std::find(list.begin(), list.end(), layer) - list.begin());
}

// A transposed convolution is d.0, d.1, ... but for the last, o; norms are those of the encoder, then the decoder's.
std::string torch_name(const Layers& layers, const KerasArray& array) {
  const auto is = [&](const char* old_leaf, const char* new_leaf) {
    return array.leaf.starts_with(old_leaf) || array.leaf == new_leaf;
  };
  if (array.layer.starts_with("conv3d")) {
    const bool transposed = array.layer.starts_with("conv3d_transpose");
    const int index = position(transposed ? layers.transposed : layers.convs, array.layer);
    const bool last = transposed && index + 1 == static_cast<int>(layers.transposed.size());
    const std::string layer = last ? "o" : concat(transposed ? "d." : "e.", index);
    return layer + (is("kernel", "0") ? ".weight" : is("bias", "1") ? ".bias" : "");
  }
  const int index = position(layers.norms, array.layer), encoder = static_cast<int>(layers.convs.size()) - 1;
  const std::string layer = index < encoder ? concat("eb.", index) : concat("db.", index - encoder);
  return layer + (is("gamma", "0")             ? ".weight"
                  : is("beta", "1")            ? ".bias"
                  : is("moving_mean", "2")     ? ".running_mean"
                  : is("moving_variance", "3") ? ".running_var"
                                               : "");
}

std::vector<int64_t> torch_shape(const std::vector<int64_t>& shape) {
  if (shape.size() != 5) return shape;
  return {shape[4], shape[3], shape[0], shape[1], shape[2]};
}

}  // namespace

WeightsSource from_keras(const WeightsSource& keras) {
  const Layers layers = layers_of(keras.shapes);
  VOX_CHECK(!layers.convs.empty() && !layers.transposed.empty(), keras.path,
            " is no OpenKBP network of Keras: it has no layers called conv3d and conv3d_transpose");
  WeightsSource source{.path = keras.path, .metadata = {}, .shapes = {}, .read = {}};
  std::map<std::string, std::string> places;
  for (const auto& [name, shape] : keras.shapes) {
    const KerasArray array = parse(name);
    const std::string own = array.layer.empty() ? name : torch_name(layers, array);
    source.shapes[own] = torch_shape(shape);
    places[own] = name;
  }
  source.read = [read = keras.read, places](const std::string& name) {
    const at::Tensor values = read(places.at(name));
    return values.dim() == 5 ? values.permute({4, 3, 0, 1, 2}).contiguous() : values;
  };
  return source;
}

}  // namespace vox
