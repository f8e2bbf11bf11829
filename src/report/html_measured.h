// What `voxloom profile` and `voxloom tune` left in a run's folder, as they print it with --json.
#pragma once

#include <string>

namespace vox {

// The waterfall of a step, what limits it, what would help. `document` is the text of profile.json; Error where it is
// no such document.
std::string profile_card(const std::string& document);
// Every trial, and their speed against their memory. `document` is the text of tune.json.
std::string tune_card(const std::string& document);

}  // namespace vox
