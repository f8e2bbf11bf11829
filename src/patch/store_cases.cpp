// The store as samplers see it.
#include "patch/sampler.h"
#include "volume/marked.h"

namespace vox {
namespace {

template <class T>
int64_t count_other_than(const VolumeView& view, const Box3& box, int64_t value) {
  const T ignored = static_cast<T>(value);
  if (static_cast<int64_t>(ignored) != value) return box.voxels();  // a value that this type cannot hold
  const T* data = reinterpret_cast<const T*>(view.data);
  const Extent3 from = box.begin - view.box.begin, extent = box.extent();
  int64_t count = 0;
  for (int64_t z = 0; z < extent.z; ++z)
    for (int64_t y = 0; y < extent.y; ++y) {
      const T* row = data + (from.z + z) * view.stride_z + (from.y + y) * view.stride_y + from.x;
      for (int64_t x = 0; x < extent.x; ++x) count += row[x] != ignored;
    }
  return count;
}

class StoreCases : public CaseSource {
 public:
  StoreCases(Store& store, const DataOptions& data)
      : store_(store),
        boxes_(store),
        ignore_label_(data.ignore_label),
        is_segmentation_(data.target == "segmentation") {}

  std::string id(int64_t index) const override { return store_.dataset().cases[static_cast<size_t>(index)].id; }
  Extent3 extent(int64_t index) const override { return store_.facts(index).extent; }
  std::vector<int64_t> labels_present(int64_t index) const override {
    std::vector<int64_t> values;
    for (const auto& [value, voxels] : store_.facts(index).label_counts)
      if (voxels > 0 && value != ignore_label_) values.push_back(value);
    return values;
  }
  const std::vector<int64_t>& foreground_labels(int64_t index) const override {
    return store_.foreground_labels(index);
  }
  bool foreground_voxel(int64_t index, int64_t value, uint64_t random, Extent3* voxel) const override {
    return store_.foreground_voxel(index, value, random, voxel);
  }
  int64_t labelled_voxels(int64_t index, const Box3& box) const override {
    const bool has_label = !store_.dataset().cases[static_cast<size_t>(index)].label.empty();
    if (ignore_label_ < 0 || !is_segmentation_ || !has_label) return box.voxels();
    const Block block = store_.fetch(index, Role::kLabel, 0, box);
    return with_type(block.view.dtype,
                     [&](auto typed) { return count_other_than<decltype(typed)>(block.view, box, ignore_label_); });
  }
  std::optional<Box3> marked_box(int64_t index) const override { return boxes_.of(index); }

 private:
  Store& store_;
  MarkedBoxes boxes_;
  int64_t ignore_label_;
  bool is_segmentation_;
};

}  // namespace

std::shared_ptr<const CaseSource> cases_of(Store& store, const DataOptions& data) {
  return std::make_shared<StoreCases>(store, data);
}

std::unique_ptr<Sampler> make_sampler(Store& store, const std::vector<int64_t>& cases, const DataOptions& data) {
  return make_sampler({cases_of(store, data), cases, data});
}

}  // namespace vox
