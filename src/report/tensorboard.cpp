#include "report/tensorboard.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <optional>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/text.h"
#include "report/machine.h"
#include "report/png.h"
#include "report/wire.h"

namespace vox {
namespace {

constexpr const char* kFilePrefix = "events.out.tfevents.";
constexpr size_t kFrameHead = 12, kFrameTail = 4;  // length + its checksum before the record, a checksum after it

// Field numbers of tensorflow's event.proto, summary.proto and tensor.proto.
enum EventField : uint32_t { kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5 };
enum ValueField : uint32_t { kTag = 1, kSimpleValue = 2, kImage = 4, kHisto = 5, kTensor = 8, kMetadata = 9 };

uint32_t masked_crc(const std::string& bytes) {
  const uint32_t crc = crc32c(std::as_bytes(std::span(bytes)));
  return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

double wall_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string frame(const std::string& record) {
  std::string length, out;
  wire::little_endian(length, static_cast<uint64_t>(record.size()));
  out = length;
  wire::little_endian(out, masked_crc(length));
  out += record;
  wire::little_endian(out, masked_crc(record));
  return out;
}

std::string event_with(const std::string& value, int64_t step) {
  std::string summary, event;
  wire::bytes(summary, 1, value);
  wire::real(event, kWallTime, wall_time());
  wire::integer(event, kStep, step);
  wire::bytes(event, kSummary, summary);
  return event;
}

// Bucket limits as TensorFlow makes them: a growing ladder by 10 % from 1e-12, mirrored.
const std::vector<double>& bucket_limits() {
  static const std::vector<double> limits = [] {
    std::vector<double> positive;
    for (double value = 1e-12; value < 1e20; value *= 1.1) positive.push_back(value);
    std::vector<double> all;
    for (auto value = positive.rbegin(); value != positive.rend(); ++value) all.push_back(-*value);
    all.push_back(0);
    all.insert(all.end(), positive.begin(), positive.end());
    all.push_back(1.7976931348623157e308);
    return all;
  }();
  return limits;
}

std::string histogram_message(std::span<const float> values) {
  const std::vector<double>& limits = bucket_limits();
  std::vector<double> counts(limits.size());
  double low = INFINITY, high = -INFINITY, sum = 0, squares = 0, count = 0;
  for (const float single : values) {
    if (!std::isfinite(single)) continue;
    const double value = single;
    low = std::min(low, value), high = std::max(high, value);
    sum += value, squares += value * value, ++count;
    ++counts[static_cast<size_t>(std::lower_bound(limits.begin(), limits.end(), value) - limits.begin())];
  }
  if (count == 0) low = high = 0;
  size_t first = 0, last = counts.size();
  while (first + 1 < last && counts[first] == 0) ++first;
  while (last > first + 1 && counts[last - 1] == 0) --last;
  if (first > 0) --first;  // an empty bucket below says where the first one begins
  std::string message;
  wire::real(message, 1, low);
  wire::real(message, 2, high);
  wire::real(message, 3, count);
  wire::real(message, 4, sum);
  wire::real(message, 5, squares);
  wire::packed(message, 6, std::span(limits).subspan(first, last - first));
  wire::packed(message, 7, std::span<const double>(counts).subspan(first, last - first));
  return message;
}

std::string text_plugin() {
  std::string plugin, metadata;
  wire::bytes(plugin, 1, "text");
  wire::bytes(metadata, 1, plugin);
  return metadata;
}

}  // namespace

EventWriter::EventWriter(const fs::path& folder) {
  static std::atomic<int> counter{0};
  make_folders(folder);
  path_ =
      folder / concat(kFilePrefix, static_cast<int64_t>(wall_time()), ".", host_name(), ".", getpid(), ".", counter++);
  file_.reset(std::fopen(path_.c_str(), "wb"));
  if (!file_) throw_system_error("write", path_.string(), errno);
  std::string event;
  wire::real(event, kWallTime, wall_time());
  wire::bytes(event, kFileVersion, "brain.Event:2");
  write_event(event);
  flush();
}

void EventWriter::scalar(const std::string& tag, double value, int64_t step) {
  std::string message;
  wire::bytes(message, kTag, utf8(tag));
  wire::real(message, kSimpleValue, static_cast<float>(value));
  write_event(event_with(message, step));
}

void EventWriter::image(const std::string& tag, const Image& image, int64_t step) {
  std::string picture, message;
  wire::integer(picture, 1, image.height);
  wire::integer(picture, 2, image.width);
  wire::integer(picture, 3, image.channels);
  wire::bytes(picture, 4, encode_png(image));
  wire::bytes(message, kTag, utf8(tag));
  wire::bytes(message, kImage, picture);
  write_event(event_with(message, step));
}

void EventWriter::histogram(const std::string& tag, std::span<const float> values, int64_t step) {
  std::string message;
  wire::bytes(message, kTag, utf8(tag));
  wire::bytes(message, kHisto, histogram_message(values));
  write_event(event_with(message, step));
}

void EventWriter::text(const std::string& tag, const std::string& markdown, int64_t step) {
  constexpr int64_t kString = 7;  // DataType DT_STRING
  std::string dimension, shape, tensor, message;
  wire::integer(dimension, 1, 1);
  wire::bytes(shape, 2, dimension);
  wire::integer(tensor, 1, kString);
  wire::bytes(tensor, 2, shape);
  wire::bytes(tensor, 8, markdown);
  wire::bytes(message, kTag, utf8(tag) + "/text_summary");
  wire::bytes(message, kTensor, tensor);
  wire::bytes(message, kMetadata, text_plugin());
  write_event(event_with(message, step));
}

void EventWriter::write_event(const std::string& event) {
  const std::string framed = frame(event);
  if (std::fwrite(framed.data(), 1, framed.size(), file_.get()) != framed.size())
    throw_system_error("write", path_.string(), errno);
}

void EventWriter::flush() {
  if (std::fflush(file_.get()) != 0) throw_system_error("write", path_.string(), errno);
}

namespace {

std::optional<uint64_t> take_varint(std::string_view& rest) {
  uint64_t value = 0;
  for (int shift = 0; shift < 64 && !rest.empty(); shift += 7) {
    const uint8_t byte = static_cast<uint8_t>(rest.front());
    rest.remove_prefix(1);
    value |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
  return std::nullopt;
}

struct Field {
  uint64_t number = 0;
  uint64_t value = 0;      // of a varint
  std::string_view bytes;  // of anything else
};

std::optional<Field> take_field(std::string_view& rest) {  // nothing at the end, or where it cannot be understood
  const std::optional<uint64_t> key = take_varint(rest);
  if (!key) return std::nullopt;
  Field field{.number = *key >> 3, .value = 0, .bytes = {}};
  const auto kind = static_cast<wire::Kind>(*key & 7);
  const bool counted = kind == wire::Kind::kVarint || kind == wire::Kind::kBytes;
  const std::optional<uint64_t> number = counted ? take_varint(rest) : kind == wire::Kind::kFixed64 ? 8 : 4;
  if (!number) return std::nullopt;
  if (kind == wire::Kind::kVarint) {
    field.value = *number;
    return field;
  }
  if (*number > rest.size()) return std::nullopt;
  field.bytes = rest.substr(0, *number);
  rest.remove_prefix(*number);
  return field;
}

Field first_field(std::string_view message, uint64_t number) {  // an empty one where there is none
  while (const std::optional<Field> field = take_field(message))
    if (field->number == number) return *field;
  return {};
}

bool lies_beyond(std::string_view event, int64_t step, bool open) {
  const auto own_step = static_cast<int64_t>(first_field(event, kStep).value);
  if (own_step != step || !open) return own_step > step;
  const std::string_view value = first_field(first_field(event, kSummary).bytes, 1).bytes;
  const std::string_view tag = first_field(value, kTag).bytes;
  return tag.starts_with(kValidationTag) || tag == kEpochTag;
}

void cut_file_after(const fs::path& path, int64_t step, bool open) {
  const std::string bytes = read_file(path);
  std::string kept;
  for (size_t place = 0; place + kFrameHead + kFrameTail <= bytes.size();) {
    uint64_t length = 0;
    std::memcpy(&length, bytes.data() + place, sizeof(length));
    if (length > bytes.size() - place - kFrameHead - kFrameTail) break;
    const size_t whole = kFrameHead + static_cast<size_t>(length) + kFrameTail;
    if (!lies_beyond(std::string_view(bytes).substr(place + kFrameHead, static_cast<size_t>(length)), step, open))
      kept.append(bytes, place, whole);
    place += whole;
  }
  if (kept.size() != bytes.size()) write_file(path, kept);
}

}  // namespace

void cut_events_after(const fs::path& folder, int64_t step, bool open) {
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder))
    if (entry.path().filename().string().starts_with(kFilePrefix)) files.push_back(entry.path());
  for (const fs::path& path : files) cut_file_after(path, step, open);
}

}  // namespace vox
