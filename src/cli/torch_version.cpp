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

}  // namespace

void require_built_torch() {
  const fs::path version_file = fs::path(torch_library()).parent_path().parent_path() / "version.py";
  if (!fs::exists(version_file)) return;  // a torch without its Python package: nothing to compare with
  const std::string text = read_file(version_file);
  std::smatch match;
  if (!std::regex_search(text, match, std::regex("__version__ = '([^']*)'"))) return;
  VOX_CHECK(match[1] == VOX_TORCH_VERSION, "this program was built for torch ", VOX_TORCH_VERSION, " but finds torch ",
            match[1].str(), " in ", version_file.parent_path().string(),
            "; run `make build` again, or point LD_LIBRARY_PATH at the torch it was built for");
}

}  // namespace vox::cli
