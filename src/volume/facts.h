// What one scan of a case found, kept in the cache folder so that a second start need not decode anything.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <vector>

#include "volume/statistics.h"
#include "volume/store.h"
#include "volume/unit.h"

namespace vox {

struct CaseScan {
  CaseFacts facts;
  std::vector<Moments> moments;                        // of each image channel, as values
  std::map<int64_t, std::vector<int64_t>> foreground;  // label value -> voxel numbers, ascending
};

uint64_t scan_key(const CaseUnits& units);
std::optional<CaseScan> load_scan(const std::filesystem::path& file, uint64_t key);  // nullopt: absent or damaged
void save_scan(const std::filesystem::path& file, uint64_t key, const CaseScan& scan);

// CaseFacts' statistics from the moments.
void set_channel_facts(CaseScan& scan);

}  // namespace vox
