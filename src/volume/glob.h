// Names of files by pattern. A pattern is a path whose parts may hold `*`, `?`, `[a-c]`, `**` (any folders) and `{id}`,
// which matches as `*` does and says what the case is called.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace vox {

struct FileMatch {
  std::string path;
  std::string id;  // what {id} matched, else what the stars matched, else the file's stem
};

bool is_pattern(const std::string& text);  // holds a wildcard or {id}

// Natural order of paths; empty where nothing matches. A pattern without wildcards matches a file of that name; the
// root is a name, whatever its letters. `path:dataset` keeps its dataset; a file whose full name matches wins.
std::vector<FileMatch> match_files(const std::filesystem::path& root, const std::string& pattern);

// Every volume in `folder` (files with a known suffix), natural order.
std::vector<FileMatch> files_of_folder(const std::filesystem::path& folder);

// The deepest folder of the pattern that is named without wildcards: where a message says it looked.
std::filesystem::path fixed_folder(const std::filesystem::path& root, const std::string& pattern);

// "a/b.nii.gz" -> "b": the name without the suffix of a known format (or its last suffix). "a/b/" is b as well.
std::string volume_stem(const std::filesystem::path& path);
bool has_volume_suffix(const std::filesystem::path& path);

// A volume's name is there: the file, or the part before `:dataset`.
bool volume_exists(const std::string& name);
// The file or folder that holds the volume `name`; of one that is not there, what stands before the first colon.
std::filesystem::path file_of_volume(const std::string& name);

}  // namespace vox
