// The input of a case that memory cannot hold: as many slices as a window is deep, each read from the file once as
// windows move on, preprocessed with the values that the whole would get. Every step that needs statistics of the whole
// (zscore, minmax) takes one pass over the file before.
#pragma once

#include <cstdint>

#include "infer/case_source.h"
#include "volume/preprocess.h"
#include "volume/unit.h"

namespace vox {

class ThreadPool;

// False where preprocessing or a turn of the axes needs the whole volume.
bool can_read_in_slabs(const CaseUnits& units, const Preprocess& preprocess);
int64_t slab_input_bytes(const CaseUnits& units, const Preprocess& preprocess, int64_t window_z);

// Reads the file before where preprocessing or a check for NaN asks for it. `preprocess` is kept. One thread may ask
// for boxes, by ascending z and no deeper than `window_z`.
CaseInput input_in_slabs(const CaseUnits& units, const Case& item, const Preprocess& preprocess, int64_t window_z,
                         ThreadPool& pool);

}  // namespace vox
