#include "volume/facts.h"

#include <cstring>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"

namespace vox {
namespace {

constexpr uint64_t kMagic = 0x3153544341465856ull;  // "VXFACTS1"

class ByteWriter {
 public:
  template <class T>
  void put(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(T));
  }
  template <class T>
  void put_list(const std::vector<T>& values) {
    put(static_cast<uint64_t>(values.size()));
    bytes_.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

class ByteReader {  // throws where the bytes end early
 public:
  explicit ByteReader(const std::string& bytes) : bytes_(bytes) {}
  template <class T>
  T get() {
    T value;
    copy(&value, sizeof(T));
    return value;
  }
  template <class T>
  std::vector<T> get_list() {
    const auto count = get<uint64_t>();
    VOX_CHECK(count <= (bytes_.size() - at_) / sizeof(T), "the list is longer than the file");
    std::vector<T> values(count);
    copy(values.data(), count * sizeof(T));
    return values;
  }

 private:
  void copy(void* out, size_t size) {
    VOX_CHECK(size <= bytes_.size() - at_, "the file ends early");
    std::memcpy(out, bytes_.data() + at_, size);
    at_ += size;
  }
  const std::string& bytes_;
  size_t at_ = 0;
};

CaseScan parse_scan(const std::string& bytes, uint64_t key) {
  ByteReader in(bytes);
  VOX_CHECK(in.get<uint64_t>() == kMagic && in.get<uint64_t>() == key, "other contents");
  const std::string body = bytes.substr(3 * sizeof(uint64_t));
  VOX_CHECK(in.get<uint64_t>() == crc32c(std::as_bytes(std::span(body))), "damaged");
  CaseScan scan;
  scan.facts.extent = in.get<Extent3>();
  scan.facts.channels = in.get<int64_t>();
  scan.facts.spacing = in.get<Spacing3>();
  scan.moments = in.get_list<Moments>();
  for (auto count = in.get<uint64_t>(); count > 0; --count) {
    const auto value = in.get<int64_t>();
    scan.facts.label_counts.emplace_back(value, in.get<int64_t>());
  }
  for (auto count = in.get<uint64_t>(); count > 0; --count) {
    const auto value = in.get<int64_t>();
    scan.foreground[value] = in.get_list<int64_t>();
  }
  set_channel_facts(scan);
  return scan;
}

}  // namespace

uint64_t scan_key(const CaseUnits& units) {
  ContentHash hash;
  for (const Unit& image : units.images) hash.add(image.key);
  hash.add(units.label ? units.label->key : 0);
  return hash.value();
}

void set_channel_facts(CaseScan& scan) {
  CaseFacts& facts = scan.facts;
  facts.channel_mean.clear(), facts.channel_std.clear(), facts.channel_min.clear(), facts.channel_max.clear();
  for (const Moments& moments : scan.moments) {
    facts.channel_mean.push_back(moments.mean);
    facts.channel_std.push_back(moments.deviation());
    facts.channel_min.push_back(moments.minimum);
    facts.channel_max.push_back(moments.maximum);
  }
}

std::optional<CaseScan> load_scan(const fs::path& file, uint64_t key) {
  std::error_code ignored;  // a folder that may not be looked into holds nothing
  if (!fs::exists(file, ignored)) return std::nullopt;
  try {
    return parse_scan(read_file(file), key);
  } catch (const Error&) {  // whatever is wrong with it, the scan is simply done again
    return std::nullopt;
  }
}

void save_scan(const fs::path& file, uint64_t key, const CaseScan& scan) {
  ByteWriter body;
  body.put(scan.facts.extent);
  body.put(scan.facts.channels);
  body.put(scan.facts.spacing);
  body.put_list(scan.moments);
  body.put(static_cast<uint64_t>(scan.facts.label_counts.size()));
  for (const auto& [value, count] : scan.facts.label_counts) body.put(value), body.put(count);
  body.put(static_cast<uint64_t>(scan.foreground.size()));
  for (const auto& [value, voxels] : scan.foreground) body.put(value), body.put_list(voxels);
  ByteWriter head;
  head.put(kMagic);
  head.put(key);
  head.put(static_cast<uint64_t>(crc32c(std::as_bytes(std::span(body.bytes())))));
  write_file(file, head.bytes() + body.bytes());
}

}  // namespace vox
