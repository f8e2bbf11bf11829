#include "measure/scratch_folder.h"

#include <cstdlib>

#include "base/error.h"

namespace vox {

ScratchFolder::ScratchFolder(const std::string& stem) {
  const char* const parents = std::getenv(kScratchVariable);
  const std::filesystem::path place = parents ? parents : std::filesystem::temp_directory_path();
  std::string name = (place / ("voxloom-" + stem + "-XXXXXX")).string();
  VOX_CHECK(mkdtemp(name.data()), "cannot make a folder in ", place.string(),
            "; set TMPDIR to one that can be written");
  path_ = name;
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace vox
