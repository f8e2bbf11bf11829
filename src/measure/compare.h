// Two recipes measured in turns, each in a process of its own, so that what disturbs the machine disturbs both.
#pragma once

#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "measure/profile.h"
#include "measure/statistics.h"

namespace vox {

struct Comparison {
  std::vector<double> first_ms, second_ms;  // a step, in each round
  std::vector<double> ratios;               // second / first
  double ratio = 1;                         // their median
  Interval interval;                        // of that median: coverage_text(ratios.size())
};

struct CompareRequest {
  std::vector<std::string> first, second;  // recipe and overrides
  std::string device;
  bool warm_cache = false;
  double seconds = 30;  // of turns; starting comes on top
  // Where only the side of a ratio is wanted: three rounds that agree, each far from it, end the measurement; an
  // interval that holds it prolongs it, to four times as long at most.
  std::optional<double> threshold;
};
Comparison compare_recipes(const CompareRequest& request);

// At least three rounds, each far on the same side of `threshold`.
bool plainly_decided(const std::vector<double>& ratios, double threshold);

// Whether an override says which data there are and where they lie. It is then no change to be measured: without it
// there may be nothing to train on.
bool says_which_data(const std::string& override_text);

// The child's side: answers every line with a number of steps on `in` by the milliseconds they took on `out`.
void serve_turns(const ProfileRequest& request, std::istream& in, std::ostream& out);

}  // namespace vox
