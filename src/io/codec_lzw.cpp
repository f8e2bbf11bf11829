// LZW of TIFF 6.0 (Welch 1984). The decoder keeps no chains of prefixes. A table entry is eight bytes: a string of up
// to seven bytes stands in it, a longer one is a place in the output where it was written before. So a short code costs
// one load, one store of eight bytes and one new entry, with nothing to walk; on CT noise nearly all codes are short,
// and the table (32 KiB) stays near the core.
#include <bit>
#include <cstring>

#include "base/error.h"
#include "io/codec.h"

namespace vox {
namespace {

constexpr uint32_t kClear = 256, kEnd = 257, kFirstFree = 258, kCodes = 4096;

uint32_t width_of(uint32_t next) {  // of the code to be read while `next` is the first free entry
  return next < 511 ? 9 : next < 1023 ? 10 : next < 2047 ? 11 : 12;
}

// Length in the top byte, 1 to 7, and the string in the others, first byte lowest; or kLong, position (32 bits),
// length (16 bits), first byte. Zero: there is no such code.
using Entry = uint64_t;
constexpr uint32_t kInline = 7, kLong = 0xff;

uint32_t tag_of(Entry entry) {
  return static_cast<uint32_t>(entry >> 56);
}
uint32_t long_length(Entry entry) {
  return static_cast<uint32_t>(entry >> 8) & 0xffff;
}
uint32_t long_position(Entry entry) {
  return static_cast<uint32_t>(entry >> 24);
}
uint32_t length_of(Entry entry) {
  return tag_of(entry) == kLong ? long_length(entry) : tag_of(entry);
}

// The string of `entry`, written at `position`, and one byte more, which stands or will stand right behind it.
Entry extend(Entry entry, uint64_t byte, uint64_t position) {
  const uint32_t tag = tag_of(entry);
  if (tag < kInline) return (entry + (Entry{1} << 56)) | (byte << (8 * tag));
  return (Entry{kLong} << 56) | (position << 24) | (uint64_t{length_of(entry) + 1} << 8) | (entry & 0xff);
}

// Whole blocks: up to kCopyBlock - 1 bytes behind the end are overwritten too. The ranges do not overlap.
constexpr uint32_t kCopyBlock = 32;
void copy_blocks(uint8_t* to, const uint8_t* from, uint32_t count) {
  for (uint32_t done = 0; done < count; done += kCopyBlock) {
    uint8_t block[kCopyBlock];
    std::memcpy(block, from + done, kCopyBlock);
    std::memcpy(to + done, block, kCopyBlock);
  }
}

class Decoder {
 public:
  Decoder(std::span<const std::byte> packed, std::span<std::byte> out)
      : in_(reinterpret_cast<const uint8_t*>(packed.data())),
        in_bits_(packed.size() * 8),
        begin_(reinterpret_cast<uint8_t*>(out.data())),
        out_(begin_),
        end_(begin_ + out.size()) {
    std::memset(table_, 0, sizeof(table_));
    for (uint32_t byte = 0; byte < 256; ++byte) table_[byte] = (Entry{1} << 56) | byte;
  }

  void run() {
    while (out_ < end_) {
      if (last_ != 0) run_hot();
      if (out_ < end_) step();
    }
  }

 private:
  // Codes of one width, four to a load of eight bytes, while the table has room and neither end is near. Leaves all
  // that is rare to step().
  void run_hot() {
    constexpr uint32_t kGroup = 4;
    constexpr int64_t kMargin = kGroup * 8 + kCopyBlock;
    if (in_bits_ < 64 || end_ - out_ <= kMargin) return;
    const uint64_t last_bit = in_bits_ - 64;
    const uint32_t width = width_of(next_), limit = width == 12 ? kCodes : (1u << width) - 1;
    const uint8_t* const last_out = end_ - kMargin;
    uint64_t bit = bit_;
    uint32_t next = next_;
    uint8_t *out = out_, *last_start = last_start_;
    Entry last = last_;
    bool rare = false;
    while (!rare && next + kGroup <= limit && bit <= last_bit && out <= last_out) {
      uint64_t window;
      std::memcpy(&window, in_ + (bit >> 3), 8);
      window = __builtin_bswap64(window) << (bit & 7);
#pragma GCC unroll 4
      for (uint32_t i = 0; i < kGroup; ++i) {
        const Entry entry = table_[window >> (64 - width)];
        window <<= width;
        uint32_t length = tag_of(entry);
        if (length - 1 >= kInline) [[unlikely]] {
          rare = length != kLong || last_out - out < long_length(entry);
          if (rare) break;
          length = long_length(entry);
          copy_blocks(out, begin_ + long_position(entry), length);
        } else {
          std::memcpy(out, &entry, 8);
        }
        bit += width;
        table_[next++] = extend(last, entry & 0xff, static_cast<uint64_t>(last_start - begin_));
        last = entry;
        last_start = out;
        out += length;
      }
    }
    bit_ = bit, next_ = next, out_ = out, last_start_ = last_start, last_ = last;
  }

  void step() {  // one code, whatever it is
    const uint32_t code = read_code();
    if (code == kClear) {
      std::memset(table_ + kFirstFree, 0, (next_ - kFirstFree) * sizeof(Entry));
      next_ = kFirstFree;
      last_ = 0;
      return;
    }
    VOX_CHECK(code != kEnd, "the LZW data ends after ", out_ - begin_, " of ", end_ - begin_, " bytes");
    Entry entry = table_[code];
    if (entry == 0) {
      VOX_CHECK(last_ != 0 && code == next_, "the LZW data is damaged: code ", code, " is not defined yet");
      entry = extend(last_, last_ & 0xff, position(last_start_));
    }
    emit(entry);
    if (last_ != 0 && next_ < kCodes) table_[next_++] = extend(last_, entry & 0xff, position(last_start_));
    last_ = entry;
    last_start_ = out_;
    out_ += std::min<int64_t>(length_of(entry), end_ - out_);
  }

  void emit(Entry entry) {
    const int64_t room = end_ - out_;
    if (tag_of(entry) != kLong) {
      std::memcpy(out_, &entry, static_cast<size_t>(std::min<int64_t>(tag_of(entry), room)));
      return;
    }
    const uint8_t* from = begin_ + long_position(entry);
    const uint32_t length = long_length(entry);
    // A string that the code itself completes reaches one byte into where it goes: that byte is its first.
    const uint32_t written = static_cast<uint32_t>(std::min<int64_t>(length, out_ - from));
    if (room >= length + kCopyBlock) {
      copy_blocks(out_, from, written);
    } else {
      std::memcpy(out_, from, static_cast<size_t>(std::min<int64_t>(written, room)));
    }
    if (written < length && written < room) out_[written] = *from;
  }

  uint32_t read_code() {
    const uint32_t width = width_of(next_);
    VOX_CHECK(bit_ + width <= in_bits_, "the LZW data ends after ", out_ - begin_, " of ", end_ - begin_, " bytes");
    uint32_t window = 0;
    for (uint64_t i = 0; i < 3; ++i) {
      const uint64_t at = (bit_ >> 3) + i;
      window = (window << 8) | (at * 8 < in_bits_ ? in_[at] : 0u);
    }
    const uint32_t code = (window >> (24 - (bit_ & 7) - width)) & ((1u << width) - 1);
    bit_ += width;
    return code;
  }

  uint64_t position(const uint8_t* place) const { return static_cast<uint64_t>(place - begin_); }

  const uint8_t* in_;
  uint64_t in_bits_, bit_ = 0;
  uint8_t *begin_, *out_, *end_;
  uint8_t* last_start_ = nullptr;  // where the last code's string was written
  Entry last_ = 0;                 // zero: none since the table was cleared
  uint32_t next_ = kFirstFree;     // entries from here on are zero
  Entry table_[kCodes];
};

class BitWriter {
 public:
  explicit BitWriter(size_t expected) { bytes_.reserve(expected); }

  void put(uint32_t code, uint32_t width) {
    pending_ = (pending_ << width) | code;
    count_ += width;
    while (count_ >= 8) {
      count_ -= 8;
      bytes_.push_back(static_cast<std::byte>(pending_ >> count_));
    }
  }
  std::vector<std::byte> finish() {
    if (count_ > 0) put(0, 8 - count_);
    return std::move(bytes_);
  }

 private:
  std::vector<std::byte> bytes_;
  uint64_t pending_ = 0;
  uint32_t count_ = 0;
};

class Encoder {
 public:
  explicit Encoder(size_t bytes) : bits_(bytes + bytes / 8 + 16) {}

  std::vector<std::byte> run(std::span<const uint8_t> bytes) {
    clear();
    if (!bytes.empty()) {
      uint32_t prefix = bytes[0];
      for (const uint8_t byte : bytes.subspan(1)) prefix = follow(prefix, byte);
      put(prefix);
      count_entry();
    }
    put(kEnd);
    return bits_.finish();
  }

 private:
  // The code of prefix + byte where there is one. Else the prefix is put out, the longer string entered, and the next
  // string starts with `byte`.
  uint32_t follow(uint32_t prefix, uint8_t byte) {
    const uint32_t key = (prefix << 8) | byte;
    uint32_t slot = (key * 0x9E3779B1u) >> (32 - kSlotBits);
    while (slots_[slot] != 0) {
      if (slots_[slot] >> 12 == key) return slots_[slot] & 0xfff;
      slot = (slot + 1) & (kSlots - 1);
    }
    slots_[slot] = (key << 12) | next_;
    put(prefix);
    count_entry();
    return byte;
  }
  void count_entry() {
    ++next_;
    if (next_ == kCodes - 2) clear();
  }
  void clear() {
    put(kClear);
    std::memset(slots_, 0, sizeof(slots_));
    next_ = kFirstFree;
  }
  void put(uint32_t code) {  // the reader is one entry behind, hence the -1
    bits_.put(code, width_of(next_ - 1));
  }

  static constexpr uint32_t kSlotBits = 13, kSlots = 1u << kSlotBits;
  BitWriter bits_;
  uint32_t next_ = kFirstFree;
  uint32_t slots_[kSlots];  // key (20 bits) and code (12 bits), never 0 as codes are not; 0: free
};

bool looks_reversed(std::span<const std::byte> packed) {  // as libtiff tells files older than TIFF 5.0 apart
  return packed.size() >= 2 && packed[0] == std::byte{0} && (packed[1] & std::byte{1}) != std::byte{0};
}

}  // namespace

void lzw_decode(std::span<const std::byte> packed, std::span<std::byte> out) {
  VOX_CHECK(!looks_reversed(packed), "old-style LZW (bits reversed, before TIFF 5.0) is not supported; save it anew");
  VOX_CHECK(out.size() < (size_t{1} << 32), "LZW data of 4 GiB or more in one piece is not supported");
  Decoder(packed, out).run();
}

std::vector<std::byte> lzw_encode(std::span<const std::byte> bytes) {
  return Encoder(bytes.size()).run({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
}

}  // namespace vox
