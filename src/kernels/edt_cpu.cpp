// Axis by axis (Saito & Toriwaki 1994): along x from the runs of a row, along y and z as min over d of f(i +- d) + d^2.
// That minimum is searched outward for 16 columns at once and ends where d^2 exceeds what is found, which is soon
// wherever distances are short; columns with long distances are done by lower envelopes (Felzenszwalb & Huttenlocher
// 2012), so that no content costs more than a few times that. Squares of whole spacings are exact in float32.
#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/error.h"
#include "kernels/bit_rows.h"
#include "kernels/edt.h"
#include "kernels/pieces.h"

namespace vox {
namespace {

constexpr int64_t kLanes = 16;
constexpr int64_t kSearchPerRow = 64;  // mean reach of the search beyond which envelopes are cheaper
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Squares of 0, 1, 2, ... steps, none above the limit.
std::vector<float> squares(int64_t count, double step_mm, float limit) {
  std::vector<float> table(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    const double distance = static_cast<double>(i) * step_mm;
    table[static_cast<size_t>(i)] = std::min(static_cast<float>(distance * distance), limit);
  }
  return table;
}

class RowPass {
 public:
  RowPass(int64_t width, double step_mm, float limit)
      : width_(width), limit_(limit), words_(static_cast<size_t>(words_for(width))) {
    up_ = squares(width + 1, step_mm, limit);
    down_.assign(up_.rbegin(), up_.rend());  // down_[width - i] is the square of i steps
  }

  void run(float* out, const uint8_t* mask) {
    pack_row(words_.data(), mask, width_);
    std::fill_n(out, width_, 0.0f);
    for_each_run(words_.data(), width_, 0, [&](int64_t begin, int64_t end) { fill(out + begin, begin, end); });
  }

 private:
  void fill(float* out, int64_t begin, int64_t end) const {
    const int64_t length = end - begin;
    const float* from_left = up_.data() + 1;
    const float* from_right = down_.data() + width_ - length;
    if (begin == 0 && end == width_) {
      std::fill_n(out, length, limit_);
    } else if (begin == 0) {
      std::copy_n(from_right, length, out);
    } else if (end == width_) {
      std::copy_n(from_left, length, out);
    } else {
      for (int64_t i = 0; i < length; ++i) out[i] = std::min(from_left[i], from_right[i]);
    }
  }

  int64_t width_;
  float limit_;
  std::vector<float> up_, down_;
  std::vector<uint64_t> words_;
};

// Sixteen neighbouring columns of `length` voxels, copied together so that the search stays in the first level cache.
class ColumnPass {
 public:
  ColumnPass(int64_t length, double step_mm, float limit)
      : length_(length),
        step_mm_(step_mm),
        limit_(limit),
        squares_(squares(length + 1, step_mm, limit)),
        tile_(static_cast<size_t>(length * kLanes)),
        column_(static_cast<size_t>(length)),
        apex_(static_cast<size_t>(length)),
        border_(static_cast<size_t>(length + 1)) {}

  // Columns begin at `first`, `lanes` of them side by side; their voxels lie `stride` apart.
  void run(float* first, int64_t stride, int64_t lanes) {
    load(first, stride, lanes);
    int64_t budget = kSearchPerRow * length_;
    for (int64_t row = 0; row < length_; ++row) {
      if (budget < 0) return envelopes(first, stride, lanes);
      budget -= search(first + row * stride, row, lanes);
    }
  }

 private:
  void load(const float* first, int64_t stride, int64_t lanes) {
    if (lanes < kLanes) std::fill(tile_.begin(), tile_.end(), 0.0f);
    for (int64_t row = 0; row < length_; ++row) std::copy_n(first + row * stride, lanes, tile_.data() + row * kLanes);
  }

  // Returns how far it went.
  int64_t search(float* out, int64_t row, int64_t lanes) const {
    const float* here = tile_.data() + row * kLanes;
    __m256 a = _mm256_loadu_ps(here), b = _mm256_loadu_ps(here + 8);
    const int64_t both = std::min(row, length_ - 1 - row), reach = std::max(row, length_ - 1 - row);
    int64_t d = 1;
    for (; d <= both; ++d) {
      const __m256 square = _mm256_broadcast_ss(&squares_[static_cast<size_t>(d)]);
      if (none_above(a, b, square)) break;
      take(a, b, here - d * kLanes, square);
      take(a, b, here + d * kLanes, square);
    }
    if (d > both) {
      const float* side = row > both ? here - d * kLanes : here + d * kLanes;
      const int64_t step = row > both ? -kLanes : kLanes;
      for (; d <= reach; ++d, side += step) {
        const __m256 square = _mm256_broadcast_ss(&squares_[static_cast<size_t>(d)]);
        if (none_above(a, b, square)) break;
        take(a, b, side, square);
      }
    }
    if (d > 1) store(out, a, b, lanes);
    return d;
  }

  static bool none_above(__m256 a, __m256 b, __m256 square) {
    const __m256 larger = _mm256_max_ps(a, b);
    return _mm256_testz_ps(_mm256_cmp_ps(larger, square, _CMP_GT_OQ), _mm256_cmp_ps(larger, square, _CMP_GT_OQ));
  }
  static void take(__m256& a, __m256& b, const float* row, __m256 square) {
    a = _mm256_min_ps(a, _mm256_add_ps(_mm256_loadu_ps(row), square));
    b = _mm256_min_ps(b, _mm256_add_ps(_mm256_loadu_ps(row + 8), square));
  }
  static void store(float* out, __m256 a, __m256 b, int64_t lanes) {
    if (lanes == kLanes) {
      _mm256_storeu_ps(out, a);
      _mm256_storeu_ps(out + 8, b);
      return;
    }
    alignas(32) float row[kLanes];
    _mm256_store_ps(row, a);
    _mm256_store_ps(row + 8, b);
    std::copy_n(row, lanes, out);
  }

  void envelopes(float* first, int64_t stride, int64_t lanes) {
    for (int64_t lane = 0; lane < lanes; ++lane) {
      for (int64_t row = 0; row < length_; ++row)
        column_[static_cast<size_t>(row)] = tile_[static_cast<size_t>(row * kLanes + lane)];
      envelope(first + lane, stride);
    }
  }

  // Parabolas in order of their apex, each with the place where it begins to be the lowest.
  void envelope(float* out, int64_t stride) {
    const double weight = step_mm_ * step_mm_;
    int64_t top = -1;
    for (int64_t row = 0; row < length_; ++row) {
      const double height = column_[static_cast<size_t>(row)];
      if (height == kInfinity) continue;
      double begin = -std::numeric_limits<double>::infinity();
      for (; top >= 0; --top) {
        const int64_t other = apex_[static_cast<size_t>(top)];
        const double rise = height - static_cast<double>(column_[static_cast<size_t>(other)]);
        begin = 0.5 * (rise / (weight * static_cast<double>(row - other)) + static_cast<double>(row + other));
        if (begin > border_[static_cast<size_t>(top)]) break;
      }
      if (top < 0) begin = -std::numeric_limits<double>::infinity();
      apex_[static_cast<size_t>(++top)] = row;
      border_[static_cast<size_t>(top)] = begin;
    }
    if (top < 0) return;  // nothing to be near to: the column stays infinite
    int64_t lowest = 0;
    for (int64_t row = 0; row < length_; ++row) {
      while (lowest < top && border_[static_cast<size_t>(lowest + 1)] <= static_cast<double>(row)) ++lowest;
      const int64_t apex = apex_[static_cast<size_t>(lowest)];
      const float square = squares_[static_cast<size_t>(std::abs(row - apex))];
      out[row * stride] = std::min(column_[static_cast<size_t>(apex)] + square, limit_);
    }
  }

  int64_t length_;
  double step_mm_;
  float limit_;
  std::vector<float> squares_, tile_, column_;
  std::vector<int64_t> apex_;
  std::vector<double> border_;
};

}  // namespace

void edt_squared_cpu(float* squared_mm2, const uint8_t* mask, const Extent3& extent, const EdtOptions& options,
                     ThreadPool* pool) {
  VOX_ASSERT(options.limit_mm > 0);
  if (extent.voxels() == 0) return;
  const float limit = static_cast<float>(options.limit_mm * options.limit_mm);
  const int64_t slice = extent.y * extent.x;
  for_each_piece(pool, extent.z, [&](int64_t z) {
    RowPass rows(extent.x, options.spacing.x_mm, limit);
    ColumnPass columns(extent.y, options.spacing.y_mm, limit);
    float* out = squared_mm2 + z * slice;
    for (int64_t y = 0; y < extent.y; ++y) rows.run(out + y * extent.x, mask + z * slice + y * extent.x);
    for (int64_t x = 0; x < extent.x; x += kLanes) columns.run(out + x, extent.x, std::min(kLanes, extent.x - x));
  });
  for_each_piece(pool, extent.y, [&](int64_t y) {
    ColumnPass columns(extent.z, options.spacing.z_mm, limit);
    for (int64_t x = 0; x < extent.x; x += kLanes)
      columns.run(squared_mm2 + y * extent.x + x, slice, std::min(kLanes, extent.x - x));
  });
}

void signed_distance_cpu(float* mm, const uint8_t* mask, const Extent3& extent, const EdtOptions& options,
                         ThreadPool* pool) {
  const int64_t voxels = extent.voxels();
  std::vector<uint8_t> complement(static_cast<size_t>(voxels));
  for (int64_t i = 0; i < voxels; ++i) complement[static_cast<size_t>(i)] = mask[i] == 0;
  std::vector<float> inside(static_cast<size_t>(voxels));
  edt_squared_cpu(inside.data(), mask, extent, options, pool);
  edt_squared_cpu(mm, complement.data(), extent, options, pool);
  for (int64_t i = 0; i < voxels; ++i)
    mm[i] = mask[i] != 0 ? -std::sqrt(inside[static_cast<size_t>(i)]) : std::sqrt(mm[i]);
}

}  // namespace vox
