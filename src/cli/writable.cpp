#include "cli/writable.h"

#include "base/error.h"
#include "base/file.h"

namespace vox::cli {

void require_writable(const std::filesystem::path& file) {
  if (file.empty()) return;
  std::error_code ignored;
  VOX_CHECK(!fs::is_directory(file, ignored), file.string(), ": this is a folder; name a file to write");
  const OutputFile trial(file);  // never committed: nothing is left of it
}

}  // namespace vox::cli
