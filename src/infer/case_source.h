// The windows of one case, read and preprocessed as in training.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/error.h"
#include "infer/sliding_window.h"
#include "kernels/gather.h"
#include "volume/store.h"

namespace vox {

// What the files of a case hold is of no use, so that the case may be left out.
struct Unreadable : Error {
  explicit Unreadable(const Error& error) : Error(error) {}
};
template <class Read>
auto read_input(const Read& read) {  // the input's faults as Unreadable
  try {
    return read();
  } catch (const Error& error) {
    if (error.fault() == Fault::kInput) throw Unreadable(error);
    throw;
  }
}

// What lies outside a volume that is smaller than the window: as data.padding says, for training saw the same.
GatherOptions outside_of(const DataOptions& data);

struct CaseInput {  // where the windows of a case come from
  std::string id;
  Extent3 extent;
  int64_t channels = 1;
  std::function<Block(int64_t channel, const Box3& box)> image;  // windows are asked for by ascending z
  std::function<Block(const Box3& box)> mask;                    // empty: the case has none
};
CaseInput input_of(const std::shared_ptr<Store>& store, int64_t case_index);

WindowSource case_source(const CaseInput& input, const Extent3& window, const GatherOptions& outside);

struct MaskOptions {
  std::string name;  // inference.mask: "" for none, "case" (the case's own), "channel:N" of the image, or a file
  std::string root;  // where a file lies that is not found as it is named
};
// The file that `mask` names for a case, for its Case::mask, so that it is turned and resampled with the image; empty
// where it names none.
std::string mask_file(const MaskOptions& mask, const std::string& id);
// Windows that hold no voxel of the mask (a channel, or that of the input) become unwanted; they lie over its box
// alone, so that few of them are needed (but a channel of the image, which may come in slabs, is not read twice to find
// that box).
void skip_outside_mask(WindowSource& source, const CaseInput& input, const Extent3& window, const MaskOptions& mask);

}  // namespace vox
