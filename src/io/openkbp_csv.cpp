#include "io/openkbp_csv.h"

#include <immintrin.h>

#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/file.h"

namespace vox {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr size_t kBlockBytes = size_t{128} << 10;  // read and parsed while it is in the second level cache
constexpr size_t kLookBytes = 64;                  // looked at together
constexpr size_t kSlackBytes = 2 * kLookBytes;     // wide loads may look past the last line's end
constexpr uint64_t kZeros = 0x3030303030303030, kHighBits = 0x8080808080808080, kOnes = 0x0101010101010101;

uint64_t load8(const char* text) {
  uint64_t word;
  std::memcpy(&word, text, sizeof(word));
  return word;
}

uint64_t first_bytes(int count) {  // a mask; 0 <= count <= 8
  return count == 8 ? ~uint64_t{0} : (uint64_t{1} << (8 * count)) - 1;
}

int first_place_of(uint64_t word, char c) {  // 8: nowhere
  const uint64_t difference = word ^ (kOnes * static_cast<uint8_t>(c));
  const uint64_t found = (difference - kOnes) & ~difference & kHighBits;
  return found == 0 ? 8 : std::countr_zero(found) >> 3;
}

uint64_t newlines_in(const char* text) {  // bit i: text[i] ends a line
  const __m256i newline = _mm256_set1_epi8('\n');
  const auto bits = [&](const char* half) {
    const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(half));
    return static_cast<uint32_t>(_mm256_movemask_epi8(_mm256_cmpeq_epi8(bytes, newline)));
  };
  return bits(text) | uint64_t{bits(text + 32)} << 32;
}

bool all_digits(uint64_t word) {
  return (((word + 0x4646464646464646) | (word - kZeros)) & kHighBits) == 0;
}

uint32_t eight_digits(uint64_t word) {  // the first byte is the highest digit; pairs, then fours, then all
  word -= kZeros;
  word = word * 10 + (word >> 8);
  return static_cast<uint32_t>(
      ((word & 0x000000FF000000FF) * 0x000F424000000064 + ((word >> 16) & 0x000000FF000000FF) * 0x0000271000000001) >>
      32);
}

// The first `count` bytes as digits, moved to the end and led by '0'.
uint64_t right_aligned(uint64_t word, int count) {
  if (count == 0) return kZeros;
  return count == 8 ? word : (word << (64 - 8 * count)) | (kZeros & first_bytes(8 - count));
}

class SparseText {
 public:
  explicit SparseText(const std::string& path) : file_(path), block_(kBlockBytes + kSlackBytes) {}

  // Calls row(index, value, newline) for each line: where its value's text begins and ends. Ends of lines are found for
  // 64 bytes at once, so that no line waits for the one before it to be parsed.
  template <class Row>
  void for_each_row(Row&& row) {
    read_header();
    while (fill()) {
      const char* line = begin_;
      for (const char* block = begin_; block < end_; block += kLookBytes) {
        for (uint64_t newlines = newlines_in(block); newlines != 0; newlines &= newlines - 1) {
          const char* newline = block + std::countr_zero(newlines);
          if (newline >= end_) break;
          const int64_t index = take_index(&line);
          row(index, line, newline);
          line = newline + 1;
        }
      }
      begin_ = end_;
    }
    VOX_CHECK(begin_ == filled_, file_.path(), ": the last line (\"", std::string_view(begin_, rest()),
              "\") does not end; was the file copied or downloaded completely?");
  }

  [[noreturn, gnu::noinline, gnu::cold]] void fail(const char* text, const char* expected) const {
    const char* stop = static_cast<const char*>(std::memchr(text, '\n', static_cast<size_t>(filled_ - text)));
    const std::string_view line(text, static_cast<size_t>((stop ? stop : filled_) - text));
    throw Error(concat(file_.path(), ": after index ", index_, " the line has \"", line.substr(0, 40), "\" where ",
                       expected, " is expected"));
  }
  [[gnu::noinline, gnu::cold]] double slow_value(const char* text, const char* newline, const char* expected) const {
    double value = 0;
    const auto [stop, status] = std::from_chars(text, newline, value);
    if (status != std::errc() || !at_end(stop, newline)) fail(text, expected);
    return value;
  }
  static bool at_end(const char* at, const char* newline) {
    return at == newline || (at + 1 == newline && *at == '\r');
  }

 private:
  size_t rest() const { return static_cast<size_t>(filled_ - begin_); }

  void read_header() {
    begin_ = filled_ = end_ = block_.data();
    fill();
    const std::string_view head(begin_, rest());
    VOX_CHECK(head.starts_with(",data\n") || head.starts_with(",data\r\n"), file_.path(),
              ": the file does not begin with the line \",data\"; this is no sparse CSV of OpenKBP");
    begin_ += head.find('\n') + 1;
  }

  // Moves what is left to the front and reads on; false once no whole line is left.
  bool fill() {
    if (begin_ < end_) return true;
    const size_t kept = rest();
    std::memmove(block_.data(), begin_, kept);
    const std::span<char> room = std::span(block_).subspan(kept, kBlockBytes - kept);
    const size_t got = static_cast<size_t>(file_.read_some(offset_, std::as_writable_bytes(room)));
    offset_ += static_cast<int64_t>(got);
    begin_ = block_.data();
    filled_ = begin_ + kept + got;
    std::memset(block_.data() + kept + got, 0, kSlackBytes);
    const std::string_view text(begin_, rest());
    const size_t last = text.rfind('\n');
    end_ = last == std::string_view::npos ? begin_ : begin_ + last + 1;
    return begin_ < end_;
  }

  [[gnu::always_inline]] int64_t take_index(const char** text) {  // and the comma; the call costs as much as the work
    const uint64_t word = load8(*text);
    if ((word & next_mask_) == next_word_) [[likely]]
      ++index_;
    else
      parse_index(*text, word);
    if (index_ >= kOpenKbpVoxels) [[unlikely]]
      fail(*text, "an index below 2097152");
    *text += next_length_;
    // The text of the next index, with one carry; where two digits carry it is no text, and the next line is parsed.
    const uint64_t one = uint64_t{1} << last_digit_shift_;
    const bool carries = (word >> last_digit_shift_ & 0xff) == '9';
    next_word_ = (word & next_mask_) + (carries ? (one >> 8) - 9 * one : one);
    return index_;
  }

  [[gnu::noinline]] void parse_index(const char* text, uint64_t word) {
    const int length = first_place_of(word, ',');
    const uint64_t digits = right_aligned(word, length);
    if (length == 0 || length > 7 || !all_digits(digits)) fail(text, "an index and a comma");
    index_ = eight_digits(digits);
    next_length_ = length + 1;
    next_mask_ = first_bytes(next_length_);
    last_digit_shift_ = 8 * (length - 1);
  }

  InputFile file_;
  std::vector<char> block_;
  int64_t offset_ = 0;                                                // of what comes next in the file
  const char *begin_ = nullptr, *end_ = nullptr, *filled_ = nullptr;  // not parsed yet; last whole line; read
  int64_t index_ = -1;
  uint64_t next_word_ = ~uint64_t{0}, next_mask_ = 0;
  int next_length_ = 0, last_digit_shift_ = 0;
};

// "1013.0" by eight-byte arithmetic; anything else that is a whole number the slow way.
int16_t int16_of(const SparseText& file, const char* text, const char* newline) {
  const int64_t digits = newline - text - 2;
  if (digits >= 1 && digits <= 6) [[likely]] {
    const uint64_t word = load8(newline - 8);  // a line has an index before, and the first one a header
    const uint64_t aligned = (word << 16 & ~first_bytes(static_cast<int>(8 - digits))) |
                             (kZeros & first_bytes(static_cast<int>(8 - digits)));
    const uint32_t value = eight_digits(aligned);
    const bool plain = word >> 48 == 0x302e && all_digits(aligned);  // ".0"
    if (plain && value <= std::numeric_limits<int16_t>::max()) [[likely]]
      return static_cast<int16_t>(value);
  }
  const char* expected = "a whole number of 16 bits";
  const double value = file.slow_value(text, newline, expected);
  if (value != std::floor(value) || std::abs(value) > std::numeric_limits<int16_t>::max()) file.fail(text, expected);
  return static_cast<int16_t>(value);
}

// "12.345" by eight-byte arithmetic: the digits without their point, divided by a power of ten.
float float_of(const SparseText& file, const char* text, const char* newline) {
  static constexpr double kPowers[] = {1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7};
  const int64_t length = newline - text;
  if (length >= 2 && length <= 8) [[likely]] {
    const uint64_t word = load8(text);
    const int point = first_place_of(word, '.');
    if (point < length) [[likely]] {
      const uint64_t whole = first_bytes(point);
      const uint64_t aligned = right_aligned((word & whole) | (word >> 8 & ~whole), static_cast<int>(length - 1));
      if (all_digits(aligned)) [[likely]]
        return static_cast<float>(eight_digits(aligned) / kPowers[length - 1 - point]);
    }
  }
  const char* expected = "a finite number";
  const double value = file.slow_value(text, newline, expected);
  if (!std::isfinite(value)) file.fail(text, expected);
  return static_cast<float>(value);
}

}  // namespace

void read_sparse_int16(const std::string& path, int16_t* voxels) {
  SparseText file(path);
  file.for_each_row(
      [&](int64_t index, const char* text, const char* newline) { voxels[index] = int16_of(file, text, newline); });
}

void read_sparse_float(const std::string& path, float* voxels) {
  SparseText file(path);
  file.for_each_row(
      [&](int64_t index, const char* text, const char* newline) { voxels[index] = float_of(file, text, newline); });
}

void read_sparse_mask(const std::string& path, uint16_t* voxels, uint16_t bits) {
  SparseText file(path);
  file.for_each_row([&](int64_t index, const char* text, const char* newline) {
    if (!SparseText::at_end(text, newline)) file.fail(text, "nothing, as in a mask");
    voxels[index] = static_cast<uint16_t>(voxels[index] | bits);
  });
}

}  // namespace vox
