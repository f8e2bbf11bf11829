#include "report/slices.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "report/run_folder.h"

namespace vox {
namespace {

struct Colour {
  uint8_t red, green, blue, alpha;
};

// Class colours that stay apart on gray and for most colour-blind eyes (after Okabe and Ito).
constexpr std::array<Colour, 7> kClassColours{{{230, 97, 0, 150},
                                               {0, 158, 115, 150},
                                               {86, 180, 233, 150},
                                               {204, 121, 167, 150},
                                               {240, 228, 66, 150},
                                               {0, 114, 178, 150},
                                               {213, 94, 0, 150}}};
constexpr Colour kIgnored{128, 128, 128, 110};
constexpr uint8_t kIgnoredLabel = 255;

Colour colour_of(uint8_t label) {
  if (label == 0) return {0, 0, 0, 0};
  if (label == kIgnoredLabel) return kIgnored;
  return kClassColours[(label - 1) % kClassColours.size()];
}

Image overlay(const SliceStrip& strip, const std::vector<uint8_t>& labels) {
  Image image{.width = strip.width, .height = strip.height, .channels = 4, .pixels = {}};
  image.pixels.reserve(labels.size() * 4);
  for (const uint8_t label : labels) {
    const Colour c = colour_of(label);
    image.pixels.insert(image.pixels.end(), {c.red, c.green, c.blue, c.alpha});
  }
  return image;
}

uint8_t blend(uint8_t below, uint8_t above, uint8_t alpha) {
  return static_cast<uint8_t>((below * (255 - alpha) + above * alpha + 127) / 255);
}

void paint(Image& out, int64_t left, const SliceStrip& strip, const std::vector<uint8_t>& labels) {
  for (int64_t y = 0; y < strip.height; ++y) {
    for (int64_t x = 0; x < strip.width; ++x) {
      const size_t from = static_cast<size_t>(y * strip.width + x);
      const size_t to = static_cast<size_t>((y * out.width + left + x) * 3);
      const uint8_t gray = strip.input[from];
      const Colour c = labels.empty() ? Colour{0, 0, 0, 0} : colour_of(labels[from]);
      out.pixels[to] = blend(gray, c.red, c.alpha);
      out.pixels[to + 1] = blend(gray, c.green, c.alpha);
      out.pixels[to + 2] = blend(gray, c.blue, c.alpha);
    }
  }
}

void check_sizes(const SliceStrip& strip) {
  const size_t pixels = static_cast<size_t>(strip.height * strip.width);
  VOX_ASSERT(strip.input.size() == pixels);
  VOX_ASSERT(strip.label.empty() || strip.label.size() == pixels);
  VOX_ASSERT(strip.prediction.empty() || strip.prediction.size() == pixels);
}

std::string safe_name(const std::string& case_id) {
  std::string name = case_id;
  for (char& c : name)
    if (c == '/' || c == '\\' || static_cast<unsigned char>(c) < 0x20) c = '_';
  return name;
}

std::string four_digits(int64_t number) {
  const std::string digits = std::to_string(number);
  return digits.size() >= 4 ? digits : std::string(4 - digits.size(), '0') + digits;
}

}  // namespace

void save_slice_strip(const RunFolder& run, const SliceStrip& strip) {
  check_sizes(strip);
  const std::string prefix = concat("image-", four_digits(strip.epoch), "-", safe_name(strip.case_id), "-");
  const auto save = [&](const char* kind, const Image& image) {
    write_file(run.images() / (prefix + kind + ".png"), encode_png(image));
  };
  save("input", {.width = strip.width, .height = strip.height, .channels = 1, .pixels = strip.input});
  if (!strip.label.empty()) save("label", overlay(strip, strip.label));
  if (!strip.prediction.empty()) save("prediction", overlay(strip, strip.prediction));
}

Image side_by_side(const SliceStrip& strip) {
  check_sizes(strip);
  constexpr int64_t kGap = 4;
  const int64_t panels = 1 + (strip.label.empty() ? 0 : 1) + (strip.prediction.empty() ? 0 : 1);
  Image image{.width = panels * strip.width + (panels - 1) * kGap, .height = strip.height, .channels = 3, .pixels = {}};
  image.pixels.assign(static_cast<size_t>(image.width * image.height * 3), 255);
  int64_t left = 0;
  paint(image, left, strip, {});
  for (const auto* labels : {&strip.label, &strip.prediction}) {
    if (labels->empty()) continue;
    left += strip.width + kGap;
    paint(image, left, strip, *labels);
  }
  return image;
}

std::vector<SliceFiles> find_slices(const RunFolder& run) {
  std::vector<SliceFiles> found;
  std::error_code none;
  for (const fs::directory_entry& entry : fs::directory_iterator(run.images(), none)) {
    const std::string name = entry.path().filename().string();
    constexpr std::string_view kPrefix = "image-", kSuffix = "-input.png";
    if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix)) continue;
    SliceFiles files;
    const char* end = name.data() + name.size();
    const auto number = std::from_chars(name.data() + kPrefix.size(), end, files.epoch);
    if (number.ec != std::errc() || *number.ptr != '-') continue;
    const size_t id_begin = static_cast<size_t>(number.ptr - name.data()) + 1;
    if (id_begin + kSuffix.size() > name.size()) continue;
    files.case_id = name.substr(id_begin, name.size() - kSuffix.size() - id_begin);
    files.input = entry.path();
    const std::string stem = name.substr(0, name.size() - kSuffix.size());
    const auto sibling = [&](const char* kind) {
      const fs::path path = run.images() / (stem + kind);
      return fs::exists(path) ? path : fs::path();
    };
    files.label = sibling("-label.png");
    files.prediction = sibling("-prediction.png");
    found.push_back(files);
  }
  std::sort(found.begin(), found.end(), [](const SliceFiles& a, const SliceFiles& b) {
    return a.epoch != b.epoch ? a.epoch < b.epoch : natural_less(a.case_id, b.case_id);
  });
  return found;
}

void drop_slices_after(const RunFolder& run, int64_t epoch) {
  for (const SliceFiles& files : find_slices(run)) {
    if (files.epoch <= epoch) continue;
    for (const fs::path& path : {files.input, files.label, files.prediction})
      if (!path.empty()) fs::remove(path);
  }
}

}  // namespace vox
