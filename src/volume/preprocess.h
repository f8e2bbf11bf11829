// data.preprocess: what is done to a volume once, before anything else sees it. Steps work in place on one channel and
// keep its stored type wherever the result is exact in it: maps that are linear in the value (z-score, min-max, window)
// change only scale and offset, so that no float copy of a volume is made.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/volume.h"
#include "config/config.h"
#include "config/options.h"
#include "volume/store.h"

namespace vox {

struct Moments;

enum class VoxelKind { kValues, kClasses };          // interpolated, or taken as they are
enum class StepNeeds { kVoxel, kMoments, kVolume };  // to tell what a voxel becomes: itself, statistics of all, all

class PreprocessMethod {
 public:
  virtual ~PreprocessMethod() = default;
  // Extent as it will be, and a type at least as wide as the result's; a scale that only the voxels can tell is NaN.
  // Error where the step cannot be done.
  virtual VolumeInfo plan(const VolumeInfo& info) const { return info; }
  virtual int64_t scratch_bytes(const VolumeInfo&) const { return 0; }  // beside the volume before and after
  virtual void apply(Volume& volume, VoxelKind kind) const = 0;
  virtual bool for_every_role() const { return false; }  // else for the image alone
  virtual bool rewrites_voxels() const { return true; }  // else scale and offset alone change
  virtual bool over_dataset() const { return false; }    // done by the store from the statistics of all cases
  virtual std::vector<ChannelStatistics> known_statistics() const { return {}; }  // instead of those of the cases
  virtual StepNeeds needs() const { return StepNeeds::kVolume; }
  // What apply() does to scale and offset, from the statistics of the stored voxels; where needs() is kMoments.
  virtual void map_from(VolumeInfo&, const Moments&) const {}
};

struct PreprocessEntry {
  std::string name;
  std::string help;  // one line
  std::unique_ptr<PreprocessMethod> (*make)(const Tree& params, const std::string& where);
  std::vector<OptionRow> (*options)();
};
const std::vector<PreprocessEntry>& all_preprocess_steps();
std::vector<OptionRow> options_of_every_step();

class Preprocess {  // the steps of a recipe
 public:
  explicit Preprocess(const DataOptions& data);

  // `channel` counts the image channels of a case, over all its files; without meaning for the other roles.
  bool any(Role role, int64_t channel) const;              // is something done to it?
  bool rewrites_voxels(Role role, int64_t channel) const;  // and is it worth keeping?
  bool zscore_over_dataset() const { return zscore_over_dataset_; }
  bool zscore_over_dataset(int64_t channel) const;
  const std::vector<ChannelStatistics>& known_statistics() const { return known_statistics_; }  // empty: measured
  VolumeInfo plan(VolumeInfo info, Role role, int64_t channel) const;
  int64_t peak_bytes(VolumeInfo info, Role role, int64_t channel) const;  // while it is done, the volume included
  void apply(Volume& volume, Role role, int64_t channel) const;
  // An image that is never whole in memory. Every step that needs the moments of all voxels takes a pass over the
  // volume; `seen` are those of the passes so far, and the next such step ends apply_to_slices().
  bool works_on_slices(int64_t channel) const;
  size_t passes(int64_t channel) const;
  void apply_to_slices(Volume& slices, int64_t channel, const std::vector<Moments>& seen) const;
  std::string description(Role role, int64_t channel) const;    // part of the cache key
  void require_channels(int64_t image_channels) const;          // Error where a step names one that is not there
  void require_known_statistics(int64_t image_channels) const;  // Error where they are of another number of channels

 private:
  struct Step {
    std::string text;
    std::vector<int64_t> channels;  // empty: all
    std::unique_ptr<PreprocessMethod> method;
  };
  struct NamedChannel {
    std::string where;
    int64_t channel = 0;
  };
  std::vector<const Step*> steps_of(Role role, int64_t channel) const;
  VoxelKind kind_of(Role role) const;

  std::vector<Step> steps_;
  std::vector<NamedChannel> named_channels_;
  bool regression_ = false, zscore_over_dataset_ = false;
  std::vector<int64_t> zscore_channels_;  // empty: all
  std::vector<ChannelStatistics> known_statistics_;
};

// Shared by steps. Values are stored * scale + offset.
void map_values(VolumeInfo& info, double factor, double shift);  // value -> value * factor + shift
double stored_zero(const VolumeInfo& info);                      // what stands for 0; no stored value where none does
void clip_values(Volume& volume, double low, double high);       // to float32 where a bound is no stored value
DType dtype_after_clip(const VolumeInfo& info, double low, double high);
Volume to_float32(const Volume& volume);  // scale 1, offset 0

}  // namespace vox
