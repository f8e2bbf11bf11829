// What is odd about a case that can be read all the same: `inspect` and `init` say it.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "volume/dataset.h"

namespace vox::cli {

struct CaseValues {  // of each channel; of the label, none where it holds no classes
  const std::vector<double>& minimum;
  const std::vector<double>& maximum;
  const std::vector<std::pair<int64_t, int64_t>>& label_counts;
};

std::vector<std::string> problems_of(const Case& item, const CaseValues& values);

}  // namespace vox::cli
