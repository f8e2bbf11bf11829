#include "io/openkbp_csv.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "io/openkbp_lanes.h"

namespace vox {
namespace {

constexpr size_t kBlockBytes = size_t{128} << 10;  // read and parsed while it is in the second level cache
constexpr size_t kLookBytes = 64;                  // looked at together
constexpr size_t kSlackBytes = 2 * kLookBytes;     // before and after: wide loads may look past a line's ends
constexpr double kPowersOfTen[] = {1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7};
constexpr uint64_t kZeros = 0x3030303030303030, kHighBits = 0x8080808080808080, kOnes = 0x0101010101010101;

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

struct FourLines {
  alignas(16) int32_t indices[4];
  const char* block;
  const uint32_t* ends;  // of the four, as places in the block
  __m128i lengths;       // of their values

  __m256i last_characters() const {
    return load_lanes(block + ends[0] - 8, block + ends[1] - 8, block + ends[2] - 8, block + ends[3] - 8);
  }
};

class SparseText {
 public:
  explicit SparseText(const std::string& path) : file_(path), block_(block_of_this_thread().data() + kSlackBytes) {}

  // Calls values.four(lines) for four lines, or values.one(index, value, newline) for a line: where its value's text
  // begins and ends; also for the four where values.four() returns false.
  template <class Values>
  void for_each_row(Values& values) {
    read_header();
    while (fill()) {
      const std::span<const uint32_t> ends = ends_of_lines();
      size_t line = 1;  // ends[0] is that of the line before the first
      for (; line + 4 <= ends.size(); line += 4) {
        if (take_four(&ends[line], values)) continue;
        for (size_t k = 0; k < 4; ++k) take_one(&ends[line + k], values);
      }
      for (; line < ends.size(); ++line) take_one(&ends[line], values);
      begin_ = end_;
    }
    VOX_CHECK(begin_ == filled_, file_.path(), ": the last line (\"",
              printable(std::string_view(begin_, rest()).substr(0, 40)),
              "\") does not end; was the file copied or downloaded completely?");
  }

  [[noreturn, gnu::noinline, gnu::cold]] void fail(const char* text, const char* expected) const {
    const char* stop = static_cast<const char*>(std::memchr(text, '\n', static_cast<size_t>(filled_ - text)));
    const std::string_view line(text, static_cast<size_t>((stop ? stop : filled_) - text));
    throw Error(concat(file_.path(), ": after index ", index_, " the line has \"", printable(line.substr(0, 40)),
                       "\" where ", expected, " is expected"));
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
  // A patient has a dozen files: one block does for all.
  static std::vector<char>& block_of_this_thread() {
    thread_local std::vector<char> block(kBlockBytes + 2 * kSlackBytes);
    return block;
  }
  size_t rest() const { return static_cast<size_t>(filled_ - begin_); }

  void read_header() {
    begin_ = filled_ = end_ = block_;
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
    std::memmove(block_, begin_, kept);
    const std::span<char> room(block_ + kept, kBlockBytes - kept);
    const size_t got = static_cast<size_t>(file_.read_some(offset_, std::as_writable_bytes(room)));
    offset_ += static_cast<int64_t>(got);
    begin_ = block_;
    filled_ = begin_ + kept + got;
    std::memset(block_ + kept + got, 0, kSlackBytes);
    const std::string_view text(begin_, rest());
    const size_t last = text.rfind('\n');
    end_ = last == std::string_view::npos ? begin_ : begin_ + last + 1;
    return begin_ < end_;
  }

  // Of all whole lines, found for 64 bytes at once so that no line waits for the one before it to be parsed. The first
  // is that of the line before, one below the begin (-1 where that is the block's).
  std::span<const uint32_t> ends_of_lines() const {
    thread_local std::vector<uint32_t> ends(kBlockBytes + kLookBytes + 1);
    uint32_t* next = ends.data();
    *next++ = static_cast<uint32_t>(begin_ - block_) - 1;
    for (const char* look = begin_; look < end_; look += kLookBytes) {
      const uint32_t place = static_cast<uint32_t>(look - block_);
      uint64_t newlines = newlines_in(look);
      if (end_ - look < static_cast<int64_t>(kLookBytes)) newlines &= (uint64_t{1} << (end_ - look)) - 1;
      const int count = std::popcount(newlines);
      for (int k = 0; k < 8; ++k, newlines &= newlines - 1)  // mostly fewer: what is too much is written over
        next[k] = place + static_cast<uint32_t>(std::countr_zero(newlines));
      for (int k = 8; k < count; ++k, newlines &= newlines - 1)
        next[k] = place + static_cast<uint32_t>(std::countr_zero(newlines));
      next += count;
    }
    return {ends.data(), next};
  }

  // Four lines whose indices have as many digits as the one before them.
  template <class Values>
  [[gnu::always_inline]] bool take_four(const uint32_t* ends, Values& values) {
    const char* text[4];
    for (int k = 0; k < 4; ++k) text[k] = block_ + static_cast<uint32_t>(ends[k - 1] + 1);
    const __m256i found = load_lanes(text[0], text[1], text[2], text[3]);
    const __m256i aligned = _mm256_sll_epi64(found, _mm_cvtsi32_si128(8 * (8 - index_digits_)));
    const __m256i commas = _mm256_srl_epi64(found, _mm_cvtsi32_si128(8 * index_digits_));
    const __m256i are_commas = _mm256_cmpeq_epi8(commas, _mm256_set1_epi8(','));
    __m128i indices;
    const __m256i first_byte = _mm256_set1_epi64x(0xff);
    if (!all_set(_mm256_cmpeq_epi64(_mm256_and_si256(are_commas, first_byte), first_byte)) ||
        !digits_of(aligned, last_bytes(_mm_set1_epi32(index_digits_)), &indices) ||
        !all_between(indices, 0, kOpenKbpVoxels - 1))
      return false;
    FourLines lines;
    _mm_store_si128(reinterpret_cast<__m128i*>(lines.indices), indices);
    const __m128i stops = _mm_loadu_si128(reinterpret_cast<const __m128i*>(ends));
    const __m128i starts = _mm_loadu_si128(reinterpret_cast<const __m128i*>(ends - 1));
    lines.lengths = _mm_sub_epi32(_mm_sub_epi32(stops, starts), _mm_set1_epi32(2 + index_digits_));
    lines.block = block_;
    lines.ends = ends;
    if (!values.four(lines)) return false;
    index_ = lines.indices[3];
    return true;
  }

  template <class Values>
  [[gnu::noinline]] void take_one(const uint32_t* end, Values& values) {
    const char* text = block_ + static_cast<uint32_t>(end[-1] + 1);
    const uint64_t word = load8(text);
    const int length = first_place_of(word, ',');
    const uint64_t digits = right_aligned(word, length);
    if (length == 0 || length > 7 || !all_digits(digits)) fail(text, "an index and a comma");
    const int64_t index = eight_digits(digits);
    if (index >= kOpenKbpVoxels) fail(text, "an index below 2097152");
    index_ = index;
    index_digits_ = length;
    values.one(index_, text + length + 1, block_ + *end);
  }

  InputFile file_;
  char* const block_;
  int64_t offset_ = 0;                                                // of what comes next in the file
  const char *begin_ = nullptr, *end_ = nullptr, *filled_ = nullptr;  // not parsed yet; last whole line; read
  int64_t index_ = -1;                                                // of the last line
  int index_digits_ = 1;                                              // likewise
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
  const int64_t length = newline - text;
  if (length >= 2 && length <= 8) [[likely]] {
    const uint64_t word = load8(text);
    const int point = first_place_of(word, '.');
    if (point < length) [[likely]] {
      const uint64_t whole = first_bytes(point);
      const uint64_t aligned = right_aligned((word & whole) | (word >> 8 & ~whole), static_cast<int>(length - 1));
      if (all_digits(aligned)) [[likely]]
        return static_cast<float>(eight_digits(aligned) / kPowersOfTen[length - 1 - point]);
    }
  }
  const char* expected = "a finite number";
  const double value = file.slow_value(text, newline, expected);
  if (!std::isfinite(value)) file.fail(text, expected);
  return static_cast<float>(value);
}

// Voxels that become 0 piece by piece, each before the first voxel of it is used.
template <class T>
class FreshVoxels {
 public:
  FreshVoxels(T* voxels, Others others) : voxels_(voxels), ready_(others == Others::kBecomeZero ? 0 : kOpenKbpVoxels) {}

  T& operator[](int64_t index) {
    if (index >= ready_) [[unlikely]]
      make_ready(index);
    return voxels_[index];
  }
  void finish() { make_ready(kOpenKbpVoxels - 1); }

 private:
  [[gnu::noinline]] void make_ready(int64_t index) {
    constexpr int64_t kPiece = (int64_t{64} << 10) / static_cast<int64_t>(sizeof(T));
    const int64_t end = std::min(kOpenKbpVoxels, (index / kPiece + 1) * kPiece);
    if (end > ready_) std::memset(voxels_ + ready_, 0, static_cast<size_t>(end - ready_) * sizeof(T));
    ready_ = std::max(ready_, end);
  }

  T* voxels_;
  int64_t ready_;  // all before it are
};

struct Int16Values {
  const SparseText& file;
  FreshVoxels<int16_t> voxels;

  bool four(const FourLines& lines) {
    __m128i numbers;
    if (!whole_numbers(lines.last_characters(), lines.lengths, &numbers)) return false;
    const uint64_t words = static_cast<uint64_t>(_mm_cvtsi128_si64(_mm_packs_epi32(numbers, numbers)));
    for (int k = 0; k < 4; ++k) voxels[lines.indices[k]] = static_cast<int16_t>(words >> (16 * k));
    return true;
  }
  void one(int64_t index, const char* text, const char* newline) { voxels[index] = int16_of(file, text, newline); }
};

struct FloatValues {
  const SparseText& file;
  FreshVoxels<float> voxels;

  bool four(const FourLines& lines) {
    __m128i numbers;
    int decimals[4];
    if (!decimal_numbers(lines.last_characters(), lines.lengths, &numbers, decimals)) return false;
    const __m256d powers = _mm256_set_pd(kPowersOfTen[decimals[3]], kPowersOfTen[decimals[2]],
                                         kPowersOfTen[decimals[1]], kPowersOfTen[decimals[0]]);
    const __m256d values = _mm256_div_pd(_mm256_cvtepi32_pd(numbers), powers);
    alignas(16) float rounded[4];
    _mm_store_ps(rounded, _mm256_cvtpd_ps(values));
    for (int k = 0; k < 4; ++k) voxels[lines.indices[k]] = rounded[k];
    return true;
  }
  void one(int64_t index, const char* text, const char* newline) { voxels[index] = float_of(file, text, newline); }
};

struct MaskBits {
  const SparseText& file;
  FreshVoxels<uint16_t> voxels;
  uint16_t bits;

  bool four(const FourLines& lines) {
    if (!all_between(lines.lengths, 0, 0)) return false;
    for (const int32_t index : lines.indices) mark(voxels[index]);
    return true;
  }
  void one(int64_t index, const char* text, const char* newline) {
    if (!SparseText::at_end(text, newline)) file.fail(text, "nothing, as in a mask");
    mark(voxels[index]);
  }
  void mark(uint16_t& voxel) const { voxel = static_cast<uint16_t>(voxel | bits); }
};

}  // namespace

void read_sparse_int16(const std::string& path, int16_t* voxels, Others others) {
  SparseText file(path);
  Int16Values values{file, {voxels, others}};
  file.for_each_row(values);
  values.voxels.finish();
}

void read_sparse_float(const std::string& path, float* voxels, Others others) {
  SparseText file(path);
  FloatValues values{file, {voxels, others}};
  file.for_each_row(values);
  values.voxels.finish();
}

void read_sparse_mask(const std::string& path, uint16_t* voxels, uint16_t bits, Others others) {
  SparseText file(path);
  MaskBits values{file, {voxels, others}, bits};
  file.for_each_row(values);
  values.voxels.finish();
}

}  // namespace vox
