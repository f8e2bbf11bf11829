#include "io/array_file.h"

#include <cstring>

#include "base/file.h"
#include "base/text.h"
#include "io/zip_archive.h"

namespace vox {

ArrayFileKind array_file_kind(const fs::path& path) {
  const InputFile file(path);
  std::byte head[8]{};
  const int64_t read = file.read_some(0, head);
  if (read >= 8 && std::memcmp(head, "\x89HDF\r\n\x1a\n", 8) == 0) return ArrayFileKind::kKeras;
  if (read >= 4 && std::memcmp(head, "\x80\x02\x8a\x0a", 4) == 0) return ArrayFileKind::kTorch;
  if (read < 4 || !is_zip(head)) return ArrayFileKind::kNone;
  for (const ZipMember& member : read_zip_directory(file)) {
    if (ends_with(member.name, "model.weights.h5")) return ArrayFileKind::kKeras;
  }
  return ArrayFileKind::kTorch;
}

}  // namespace vox
