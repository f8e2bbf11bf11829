#pragma once

namespace vox {

struct Place {  // of a process among those that train together
  int index = 0, count = 1;
};

}  // namespace vox
