// What transforms of values share: parameters that may differ between channels, and sections that defects strike.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "augment/spatial.h"
#include "base/error.h"
#include "base/text.h"

namespace vox {

template <class T>
using PerChannel = std::vector<std::optional<T>>;  // empty where a channel is left alone

template <class DrawOne>
auto draw_channels(const ChannelSwitch& options, int64_t channels, Random& random, const DrawOne& draw_one) {
  using T = decltype(draw_one());
  PerChannel<T> drawn;
  std::optional<T> shared;
  if (!options.per_channel) shared = draw_one();
  for (int64_t channel = 0; channel < channels; ++channel) {
    const bool chosen = options.channel_prob >= 1 || random.chance(options.channel_prob);
    std::optional<T> own;
    if (options.per_channel) own = draw_one();
    drawn.push_back(!chosen ? std::optional<T>() : options.per_channel ? own : shared);
  }
  return drawn;
}

// Adds apply(patch, parameters) for the channels that have some, the same as data, to_step(parameters, channel), and
// "what they are" in words, channel by channel.
template <class T, class Apply, class ToStep, class Describe>
void add_intensity(Drawn& drawn, const char* name, PerChannel<T> values, const Apply& apply, const ToStep& to_step,
                   const Describe& describe) {
  std::vector<std::string> texts;
  for (const std::optional<T>& value : values) {
    const std::string text = value ? describe(*value) : "none";
    if (texts.empty() || texts.back() != text) texts.push_back(text);
  }
  drawn.parameters.emplace_back(name, join(texts, " | "));
  drawn.steps.push_back([values, to_step](int64_t channel) -> std::optional<IntensityStep> {
    const std::optional<T>& value = values[static_cast<size_t>(channel)];
    if (!value) return std::nullopt;
    return to_step(*value, channel);
  });
  drawn.intensity.emplace_back(name, [values = std::move(values), apply](const PatchView& patch) {
    const std::optional<T>& value = values[static_cast<size_t>(patch.channel)];
    if (value) apply(patch, *value);
  });
}

// The same for all channels.
inline void add_intensity(Drawn& drawn, const char* name, IntensityOp apply, const IntensityStep& step) {
  drawn.intensity.emplace_back(name, std::move(apply));
  drawn.steps.push_back([step](int64_t) { return std::optional<IntensityStep>(step); });
}

// Different sections of a patch, in order: 1 to `most` of them.
std::vector<int64_t> draw_sections(int64_t most, int64_t sections, Random& random);
std::string listed(const std::vector<int64_t>& numbers);

// A box with sides between the shares of the patch's, anywhere inside it.
Box3 draw_box(const Extent3& patch, const std::vector<double>& share, const char* option, Random& random);

template <class Visit>
void for_each_row(const Box3& box, const Extent3& extent, const Visit& visit) {  // first element, length
  for (int64_t z = box.begin.z; z < box.end.z; ++z)
    for (int64_t y = box.begin.y; y < box.end.y; ++y)
      visit((z * extent.y + y) * extent.x + box.begin.x, box.end.x - box.begin.x);
}

}  // namespace vox
