// Questions that recognising a network asks of names and shapes.
#pragma once

#include <string>
#include <vector>

#include "nets/recognise.h"

namespace vox {

class ShapeView {
 public:
  ShapeView(const ShapeMap& shapes, const std::string& prefix);  // only the names below the prefix, without it

  bool has(const std::string& name) const { return shapes_.count(name) > 0; }
  bool any_ends_with(const std::string& suffix) const;
  int64_t size(const std::string& name, size_t axis) const;    // 0 where it is not there
  std::vector<int64_t> kernel(const std::string& name) const;  // the last three axes; 1s where it is not there
  // How many of `before`0`after`, `before`1`after`, ... there are.
  int64_t count(const std::string& before, const std::string& after) const;
  const ShapeMap& all() const { return shapes_; }

 private:
  ShapeMap shapes_;
};

std::string option(const std::string& key, int64_t value);
std::string option(const std::string& key, const std::vector<int64_t>& values);               // key=[1, 2]
std::string option(const std::string& key, const std::vector<std::vector<int64_t>>& values);  // key=[[1, 2, 2], ...]

using Strings = std::vector<std::string>;
// Each expects that the network's signature is there.
Strings infer_unet(const ShapeView& shapes);
Strings infer_resenc_unet(const ShapeView& shapes);
Strings infer_monai_unet(const ShapeView& shapes);
Strings infer_monai_basic_unet3d(const ShapeView& shapes);
Strings infer_dynunet(const ShapeView& shapes);
Strings infer_mednext(const ShapeView& shapes);
Strings infer_rsunet(const ShapeView& shapes);
Strings infer_openkbp_unet(const ShapeView& shapes);
Strings infer_cascade_unet(const ShapeView& shapes);

}  // namespace vox
