#include "cli/torch_version.h"

#include <link.h>

#include <filesystem>
#include <regex>
#include <string>

#include "base/error.h"
#include "base/file.h"

namespace vox::cli {
namespace {

// Path of the loaded libc10.so; empty where there is none.
std::string torch_library() {
  std::string found;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* out) {
        const std::string path = info->dlpi_name;
        if (fs::path(path).filename().string().rfind("libc10.so", 0) == 0) *static_cast<std::string*>(out) = path;
        return 0;
      },
      &found);
  return found;
}

fs::path version_file() {
  return fs::path(torch_library()).parent_path().parent_path() / "version.py";
}

}  // namespace

std::string loaded_torch_version() {
  if (!fs::exists(version_file())) return "";
  const std::string text = read_file(version_file());
  std::smatch match;
  return std::regex_search(text, match, std::regex("__version__ = '([^']*)'")) ? match[1].str() : "";
}

void require_built_torch() {
  const std::string loaded = loaded_torch_version();
  if (loaded.empty()) return;  // nothing to compare with
  VOX_CHECK(loaded == VOX_TORCH_VERSION, "this program was built for torch ", VOX_TORCH_VERSION, " but finds torch ",
            loaded, " in ", version_file().parent_path().string(),
            "; run `make build` again, or point LD_LIBRARY_PATH at the torch it was built for");
}

}  // namespace vox::cli
