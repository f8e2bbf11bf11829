// TensorBoard event files, written by hand: protobuf wire format in TFRecord frames with masked CRC-32C.
#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

namespace vox {

struct Image;

class EventWriter {
 public:
  explicit EventWriter(const std::filesystem::path& folder);  // a new events.out.tfevents.<time>.<host>.<pid>.<n>

  void scalar(const std::string& tag, double value, int64_t step);
  void image(const std::string& tag, const Image& image, int64_t step);
  void histogram(const std::string& tag, std::span<const float> values,
                 int64_t step);  // values not finite are left out
  void text(const std::string& tag, const std::string& markdown, int64_t step);
  void flush();
  const std::filesystem::path& path() const { return path_; }

 private:
  void write_event(const std::string& event);

  struct CloseFile {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::filesystem::path path_;
  std::unique_ptr<std::FILE, CloseFile> file_;
};

inline constexpr const char* kValidationTag = "val/";    // scores and pictures begin with it
inline constexpr const char* kEpochTag = "train/epoch";  // written after them, at the same step
// Rewrites the event files of `folder` without what lies beyond `step`; half a record at a file's end goes too. With
// `open` what ends the epoch of this step goes too, its validation first: it will come again.
void cut_events_after(const std::filesystem::path& folder, int64_t step, bool open = false);

}  // namespace vox
