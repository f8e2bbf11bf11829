#ifdef VOX_HAVE_HDF5
#include "io/hdf5_chunks.h"

#include <algorithm>
#include <cstring>

#include "io/blosc.h"
#include "io/codec.h"
#include "io/inflate.h"
#include "io/lzf.h"

namespace vox::h5 {
namespace {

using Bytes = std::span<const std::byte>;

struct KnownFilter {
  H5Z_filter_t id;
  Filter filter;
};
constexpr KnownFilter kFilters[] = {{H5Z_FILTER_DEFLATE, Filter::kDeflate},
                                    {H5Z_FILTER_SHUFFLE, Filter::kShuffle},
                                    {H5Z_FILTER_FLETCHER32, Filter::kFletcher32},
                                    {32000, Filter::kLzf},
                                    {32001, Filter::kBlosc},
                                    {32015, Filter::kZstd}};

bool packs(Filter filter) {
  return filter != Filter::kShuffle && filter != Filter::kFletcher32;
}

Bytes without_checksum(Bytes bytes) {
  VOX_CHECK(bytes.size() >= 4, "its checksum is missing");
  const Bytes content = bytes.first(bytes.size() - 4);
  uint32_t stored;
  std::memcpy(&stored, bytes.data() + content.size(), 4);
  VOX_CHECK(fletcher32(content) == stored, "its checksum is wrong; the data is damaged");
  return content;
}

void unpack(Filter filter, Bytes packed, std::span<std::byte> out, const ByteRange& wanted) {
  switch (filter) {
    case Filter::kDeflate:
      return inflate_all(packed, out);
    case Filter::kLzf:
      return lzf_decode(packed, out);
    case Filter::kZstd:
      return decode_bytes(Codec::kZstd, packed, out);
    default:
      return blosc_decode(packed, out, wanted);
  }
}

}  // namespace

std::optional<Pipeline> read_pipeline(hid_t creation, int64_t type_size) {
  Pipeline pipeline;
  pipeline.type_size = type_size;
  const int count = H5Pget_nfilters(creation);
  int packing = 0;
  for (int i = 0; i < count; ++i) {
    unsigned flags = 0, config = 0;
    size_t values = 0;
    const H5Z_filter_t id =
        H5Pget_filter2(creation, static_cast<unsigned>(i), &flags, &values, nullptr, 0, nullptr, &config);
    const auto known =
        std::find_if(std::begin(kFilters), std::end(kFilters), [&](const KnownFilter& f) { return f.id == id; });
    if (known == std::end(kFilters)) return std::nullopt;
    packing += packs(known->filter) ? 1 : 0;
    // Checksums over unpacked bytes, and two packers in a row, are rare: the library does those.
    const bool unusual = packing > 1 || (packing == 1 && known->filter == Filter::kShuffle) ||
                         (known->filter == Filter::kFletcher32 && i + 1 < count);
    if (unusual) return std::nullopt;
    pipeline.filters.push_back(known->filter);
  }
  return pipeline;
}

hsize_t chunk_bytes(hid_t dataset, const hsize_t* origin) {
  hsize_t bytes = 0;
#if H5_VERSION_GE(1, 10, 5)
  unsigned skipped_filters = 0;
  haddr_t address = HADDR_UNDEF;
  VOX_CHECK(H5Dget_chunk_info_by_coord(dataset, origin, &skipped_filters, &address, &bytes) >= 0, last_problem());
#else
  if (H5Dget_chunk_storage_size(dataset, origin, &bytes) < 0) return 0;  // so it answers for what was never written
#endif
  return bytes;
}

void decode_chunk(const Pipeline& pipeline, uint32_t skipped_filters, Bytes packed, std::span<std::byte> out,
                  const ByteRange& wanted) {
  thread_local std::vector<std::byte> shuffled;
  bool is_shuffled = false;
  for (size_t i = 0; i < pipeline.filters.size(); ++i)
    is_shuffled |= pipeline.filters[i] == Filter::kShuffle && (skipped_filters >> i & 1) == 0;
  is_shuffled = is_shuffled && pipeline.type_size > 1;
  if (is_shuffled && shuffled.size() < out.size()) shuffled.resize(out.size());
  const std::span<std::byte> unpacked = is_shuffled ? std::span(shuffled).first(out.size()) : out;
  const ByteRange range = is_shuffled ? ByteRange{0, static_cast<int64_t>(out.size())} : wanted;
  bool done = false;
  for (size_t i = pipeline.filters.size(); i-- > 0;) {
    if ((skipped_filters >> i & 1) != 0) continue;
    if (pipeline.filters[i] == Filter::kFletcher32) packed = without_checksum(packed);
    if (!packs(pipeline.filters[i])) continue;
    unpack(pipeline.filters[i], packed, unpacked, range);
    done = true;
  }
  VOX_CHECK(done || packed.size() == out.size(), "it has ", packed.size(), " bytes, but ", out.size(), " are expected");
  if (!done && !is_shuffled) std::memcpy(out.data(), packed.data(), out.size());
  if (is_shuffled) unshuffle_bytes(done ? Bytes(unpacked) : packed, out.data(), pipeline.type_size);
}

// Fletcher 1982 over words of two bytes, the first one high, with the sums folded as the library does.
uint32_t fletcher32(Bytes bytes) {
  uint64_t sum1 = 0, sum2 = 0;
  size_t at = 0;
  const size_t words = bytes.size() / 2;
  for (size_t word = 0; word < words;) {
    const size_t stop = std::min(words, word + 360);
    for (; word < stop; ++word, at += 2) {
      sum1 += static_cast<uint64_t>(bytes[at]) << 8 | static_cast<uint64_t>(bytes[at + 1]);
      sum2 += sum1;
    }
    sum1 = (sum1 & 0xffff) + (sum1 >> 16);
    sum2 = (sum2 & 0xffff) + (sum2 >> 16);
  }
  if (bytes.size() % 2 != 0) {
    sum1 += static_cast<uint64_t>(bytes[at]) << 8;
    sum2 += sum1;
    sum1 = (sum1 & 0xffff) + (sum1 >> 16);
    sum2 = (sum2 & 0xffff) + (sum2 >> 16);
  }
  while (sum1 >> 16 != 0) sum1 = (sum1 & 0xffff) + (sum1 >> 16);
  while (sum2 >> 16 != 0) sum2 = (sum2 & 0xffff) + (sum2 >> 16);
  return static_cast<uint32_t>(sum2 << 16 | sum1);
}

}  // namespace vox::h5
#endif
