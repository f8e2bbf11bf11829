// Which cases there are, where their files lie, and which split each belongs to. Order and ids are stable: they depend
// on names alone, never on the file system's order.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/volume.h"
#include "config/options.h"

namespace vox {

struct Case {
  std::string id;
  std::string group;                // a patient or a scroll; the id where there is none
  std::vector<std::string> images;  // one name per channel, or one name for a file of many channels
  std::string label;                // empty: none
  std::string mask;                 // empty: none
  std::string split;                // as the table or the list says; empty: to be drawn
  int64_t fold = -1;                // of kfold, as the list says; -1: to be drawn
};

enum class Split { kTrain, kValidation, kTest };

struct Dataset {
  std::vector<Case> cases;                       // by id, natural order
  std::vector<int64_t> train, validation, test;  // indices into cases

  const std::vector<int64_t>& of(Split split) const;
};

// Finds the cases and splits them (fold `training.fold` of `data.folds`, by seed, whole groups only). Error where
// there is none, an id appears twice, a partner is missing, or a group would be in two splits.
Dataset make_dataset(const DataOptions& data, int64_t fold, uint64_t seed);

}  // namespace vox
