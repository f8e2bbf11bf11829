// One look at every voxel of a case: statistics, labels, foreground, and what is wrong with them.
#pragma once

#include <functional>

#include "config/options.h"
#include "volume/facts.h"
#include "volume/loader.h"
#include "volume/unit.h"

namespace vox {

// Hands all slabs of a unit to the visitor, wherever they come from.
using VisitSlabs = std::function<void(const Unit&, const Loader::Slab&)>;

// Error where an image is not finite, or a segmentation label is no whole number from 0 to 255.
CaseScan scan_case(const CaseUnits& units, const DataOptions& data, const VisitSlabs& visit);

// Error where a label has a value that data.labels does not list. Apart from the scan, because a scan is kept and the
// option may change.
void require_known_labels(const CaseScan& scan, const CaseUnits& units, const DataOptions& data);

}  // namespace vox
