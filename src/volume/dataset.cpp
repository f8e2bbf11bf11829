#include "volume/dataset.h"

#include "volume/manifest.h"
#include "volume/split.h"

namespace vox {

const std::vector<int64_t>& Dataset::of(Split split) const {
  return split == Split::kTrain ? train : split == Split::kValidation ? validation : test;
}

Dataset make_dataset(const DataOptions& data, int64_t fold, uint64_t seed) {
  Dataset dataset;
  dataset.cases = find_cases(data);
  split_cases(dataset, data, fold, seed);
  return dataset;
}

}  // namespace vox
