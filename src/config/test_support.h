// Helpers of this folder's tests.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "base/error.h"
#include "base/file.h"
#include "config/config.h"

namespace vox {

inline Options options_of(const std::string& yaml, const std::vector<std::string>& overrides = {}) {
  return parse_config(yaml, "/recipes", overrides).options;
}

inline std::string error_of(const std::string& yaml, const std::vector<std::string>& overrides = {}) {
  try {
    parse_config(yaml, "/recipes", overrides);
  } catch (const Error& error) {
    EXPECT_EQ(error.fault(), Fault::kInput);
    return error.what();
  }
  return "no error";
}

class Folder {  // gone with its test
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "voxloom-config-XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  ~Folder() { fs::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  fs::path write(const std::string& name, const std::string& text) const {
    write_file(path_ / name, text);
    return path_ / name;
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

}  // namespace vox
