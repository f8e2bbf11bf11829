// The little of protobuf's wire format that event files need: fields by number, into a growing string.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

namespace vox::wire {

inline void varint(std::string& out, uint64_t value) {
  while (value >= 0x80) {
    out += static_cast<char>(value | 0x80);
    value >>= 7;
  }
  out += static_cast<char>(value);
}
template <class T>
void little_endian(std::string& out, T value) {
  static_assert(std::endian::native == std::endian::little);
  char bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof(T));
  out.append(bytes, sizeof(T));
}

enum class Kind : uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };
inline void key(std::string& out, uint32_t field, Kind kind) {
  varint(out, field << 3 | static_cast<uint32_t>(kind));
}
inline void integer(std::string& out, uint32_t field, int64_t value) {
  key(out, field, Kind::kVarint);
  varint(out, static_cast<uint64_t>(value));
}
inline void real(std::string& out, uint32_t field, double value) {
  key(out, field, Kind::kFixed64);
  little_endian(out, value);
}
inline void real(std::string& out, uint32_t field, float value) {
  key(out, field, Kind::kFixed32);
  little_endian(out, value);
}
inline void bytes(std::string& out, uint32_t field, const std::string& value) {
  key(out, field, Kind::kBytes);
  varint(out, value.size());
  out += value;
}
inline void packed(std::string& out, uint32_t field, std::span<const double> values) {
  key(out, field, Kind::kBytes);
  varint(out, values.size_bytes());
  for (const double value : values) little_endian(out, value);
}

}  // namespace vox::wire
