#include "report/foreign_error.h"

#include <regex>

#include "base/error.h"
#include "base/text.h"

namespace vox {
namespace {

// "2.00 GiB", or "56623104 bytes" as the CPU's allocator says it; empty where it does not say.
std::string asked_for(const std::string& line) {
  std::smatch found;
  if (!std::regex_search(line, found, std::regex("[Tt]ried to allocate ([0-9.]+) (bytes|[KMG]iB)"))) return "";
  return found[2] == "bytes" ? human_bytes(std::stoll(found[1])) : found.str(1) + " " + found.str(2);
}

}  // namespace

ForeignError foreign_error(const std::string& what) {
  const std::string line = trim(what.substr(0, what.find('\n')));
  const std::string asked = asked_for(line);
  if (!asked.empty())
    return {concat("out of memory: ", asked, " more were asked for",
                   line.find("GPU") == std::string::npos ? "" : " on the GPU"),
            true};
  return {line, line.find("out of memory") != std::string::npos};
}

}  // namespace vox
