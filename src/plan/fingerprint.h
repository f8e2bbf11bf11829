// What a dataset is like, measured once from every voxel: sizes, spacings, labels, and the intensities of what is
// labelled. nnU-Net's word for it, and its rules: each case counts the same, however large it is.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/volume.h"
#include "plan/layout.h"
#include "plan/topology.h"

namespace vox {

class ThreadPool;

struct CasePrint {
  std::string id;
  Extent3 extent;
  Spacing3 spacing;                        // of the image, 1 where it does not say
  bool has_spacing = false;                // image, label and mask all say theirs
  Extent3 nonzero;                         // size of the box around voxels that are not zero in every channel
  std::vector<VolumeInfo> images, others;  // each channel; label and mask, before any preprocessing
  std::vector<double> mean, deviation, minimum, maximum;  // of each channel
  std::vector<std::pair<int64_t, int64_t>> label_counts;  // value, voxels; none of a regression
};

struct Intensities {                                  // of foreground voxels; a case without any has no say
  double mean = 0, deviation = 1, low = 0, high = 1;  // low and high: percentiles 0.5 and 99.5
};

struct Fingerprint {
  std::vector<CasePrint> cases;
  int64_t channels = 1;
  std::map<int64_t, int64_t> labels;  // value, voxels; 0 always, the ignore label never
  int64_t ignored_voxels = 0, voxels = 0;
  std::vector<Intensities> foreground;  // of each channel
  double relative_size = 1;             // median of nonzero box / volume
  std::string turned;                   // why volumes are turned to RAS; empty: all point the same way

  std::vector<CaseShape> shapes() const;  // of the nonzero boxes
  bool one_spacing() const;               // all cases have the same, to one in a thousand
  bool all_have_spacing() const;
};

// Opens and reads every case, and checks it as `inspect` does. Error names the case and the file.
Fingerprint measure(const Layout& layout, ThreadPool& pool, const std::function<void(int64_t done)>& progress = {});

}  // namespace vox
