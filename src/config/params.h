// Options of a registry entry (a loss, a preprocessing step): a struct with describe(), read from the part of the
// recipe that only the entry understands, with the checks and messages of every other option.
//
//   struct ClipOptions {
//     double low = 0, high = 1;
//     void describe(Visitor& v) {
//       v.field("low", low, {.meaning = "Values below become this"});
//       v.field("high", high, {.meaning = "Values above become this"});
//     }
//   };
//   const auto options = parse_params<ClipOptions>(step.params, "data.preprocess: clip");
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "config/config.h"
#include "config/visitor.h"

namespace vox {

using Describe = std::function<void(Visitor&)>;
void read_described(const Describe& describe, const Tree& params, const std::string& where);
std::vector<OptionRow> described_rows(const Describe& describe);

// `where` opens messages: "loss.terms: dice". `value` holds the defaults.
template <class T>
T parse_params(const Tree& params, const std::string& where, T value = {}) {
  read_described([&](Visitor& visitor) { value.describe(visitor); }, params, where);
  return value;
}

template <class T>
std::vector<OptionRow> rows_of() {
  T value;
  return described_rows([&](Visitor& visitor) { value.describe(visitor); });
}

}  // namespace vox
