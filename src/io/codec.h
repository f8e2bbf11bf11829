// Byte codecs that several formats share. They know nothing of files: an Error says what is wrong with the bytes, and
// the format that called puts the place before it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace vox {

enum class Codec : uint8_t { kNone, kLzw, kDeflate, kZstd, kPackBits };

const char* name_of(Codec codec);                // "none", "lzw", "deflate", "zstd", "packbits"
Codec codec_from_name(const std::string& name);  // Error lists the known names

// Bytes that one packed byte can become at most: what a file of a known size can hold, asked before memory is.
int64_t max_expansion(Codec codec);

// Fills `out` and stops there, even where the packed bytes hold more. Error where they hold less or make no sense.
// kBegin says that they will hold more: quicker then than to find out.
enum class Wanted : uint8_t { kAll, kBegin };
void decode_bytes(Codec codec, std::span<const std::byte> packed, std::span<std::byte> out,
                  Wanted wanted = Wanted::kAll);

// `level` as the codec counts it; -1: its default. LZW and PackBits have none.
std::vector<std::byte> encode_bytes(Codec codec, std::span<const std::byte> bytes, int level = -1);

// LZW as TIFF 6.0 writes it: most significant bit first, codes widen one early. Also through the two above.
void lzw_decode(std::span<const std::byte> packed, std::span<std::byte> out);
std::vector<std::byte> lzw_encode(std::span<const std::byte> bytes);

}  // namespace vox
