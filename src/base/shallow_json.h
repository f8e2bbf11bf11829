// JSON from files that anyone may have written. `Json` is one of the library's types, whose header the caller includes.
#pragma once

#include <string_view>

namespace vox {

// Without what lies deeper than anything that these files mean: a value that nests without end cannot even be copied.
// Text that is no JSON is a value that is discarded, or an exception of the library's.
template <class Json>
Json parse_shallow(std::string_view text, bool allow_exceptions = false) {
  constexpr int kDeepest = 64;
  const auto is_shallow = [](int depth, typename Json::parse_event_t, Json&) { return depth <= kDeepest; };
  return Json::parse(text, is_shallow, allow_exceptions);
}

}  // namespace vox
