// The cache folder's chunk files: where they lie, which are there, how one is made, the open ones, and how long unused
// ones stay.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "volume/chunk_store.h"
#include "volume/handles.h"
#include "volume/loader.h"
#include "volume/unit.h"

namespace vox {

std::filesystem::path cache_folder(const std::string& cache_dir);  // data.cache_dir, or the user's cache folder

class ChunkShelf {
 public:
  ChunkShelf(std::filesystem::path folder, Loader& loader, int64_t most_open);

  bool holds(const Unit& unit);  // a file that is whole, as far as its header and index say
  // Makes the unit's file from its source where it is not there, one process at a time; `also` sees every slab.
  void build(const Unit& unit, ThreadPool* pool, const Loader::Slab& also);
  void write(const Unit& unit, const Volume& volume);  // as build, from voxels at hand
  std::shared_ptr<const ChunkFile> open(const Unit& unit);
  void discard(const Unit& unit);  // a file found damaged

  std::filesystem::path facts_of(uint64_t key) const;  // where the scan of a case is kept
  void mark_used(const Unit& unit) const;              // today, by whoever opened the dataset
  const std::filesystem::path& folder() const { return folder_; }

 private:
  std::filesystem::path file_of(const Unit& unit) const;

  const std::filesystem::path folder_;
  Loader& loader_;
  Handles<const ChunkFile> files_;
};

// The date of a file of the cache folder says when it was used last.
void mark_used(const std::filesystem::path& file);
// Removes chunk files and facts that nobody used for so many days; 0 keeps them. Files of others stay.
void remove_unused(const std::filesystem::path& folder, double days);

// Error (the machine's) where the folder's disk has less than `bytes` free.
void require_free_space(const std::filesystem::path& folder, int64_t bytes);

}  // namespace vox
