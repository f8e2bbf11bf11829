// Small helpers on text: splitting, joining, nearest names, sizes and durations as people write them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace vox {

std::vector<std::string> split(std::string_view text, char separator);
std::string join(const std::vector<std::string>& parts, const std::string& separator);
std::string trim(std::string_view text);
std::string lower(std::string_view text);
bool ends_with(std::string_view text, std::string_view suffix);  // ignores case
std::string utf8(std::string_view text);                         // bytes that are none become question marks
std::string printable(std::string_view text);  // for messages: of what a file says, plain ASCII, and not too long

// Edits (insert, delete, replace, swap neighbours) between two words; the nearest of `known`, or "" where none is
// close enough to be what was meant.
int edit_distance(std::string_view a, std::string_view b);
std::string nearest(std::string_view word, const std::vector<std::string>& known);

// a2 before a10: digits compare as numbers.
bool natural_less(std::string_view a, std::string_view b);

std::string human_bytes(int64_t bytes);               // "3.2 GiB"
std::string human_seconds(double seconds);            // "4 min 12 s"
std::string format_number(double value, int digits);  // fixed, that many decimals
std::string shortest(double value);                   // the shortest text that reads back as the same number

}  // namespace vox
