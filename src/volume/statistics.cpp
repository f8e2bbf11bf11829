#include "volume/statistics.h"

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <vector>

namespace vox {
namespace {

// Types of few values: a histogram gives exact moments in one quick pass.
template <class T>
Moments moments_by_histogram(const T* data, int64_t count, const double* left_out) {
  constexpr int64_t kValues = int64_t{1} << (8 * sizeof(T));
  constexpr int64_t kTables = sizeof(T) == 1 ? 4 : 1;  // equal neighbours would wait for one counter
  std::vector<int64_t> table(static_cast<size_t>(kValues * kTables), 0);
  using Bits = std::make_unsigned_t<T>;
  for (int64_t i = 0; i < count; ++i)
    ++table[static_cast<size_t>((i % kTables) * kValues) + static_cast<Bits>(data[i])];
  Moments moments;
  double sum = 0;
  const auto each_value = [&](auto&& visit) {
    for (int64_t bits = 0; bits < kValues; ++bits) {
      int64_t times = 0;
      for (int64_t t = 0; t < kTables; ++t) times += table[static_cast<size_t>(t * kValues + bits)];
      const auto value = static_cast<double>(static_cast<T>(static_cast<Bits>(bits)));
      if (times > 0 && !(left_out && value == *left_out)) visit(value, times);
    }
  };
  each_value([&](double value, int64_t times) {
    moments.count += times;
    sum += value * static_cast<double>(times);
    moments.minimum = std::min(moments.minimum, value);
    moments.maximum = std::max(moments.maximum, value);
  });
  if (moments.count == 0) return moments;
  moments.mean = sum / static_cast<double>(moments.count);
  each_value([&](double value, int64_t times) {
    moments.m2 += (value - moments.mean) * (value - moments.mean) * static_cast<double>(times);
  });
  return moments;
}

template <class T>
Moments moments_of_part(const T* data, int64_t count, const double* left_out) {  // two passes over a part in the cache
  Moments moments;
  double sum = 0;
  const auto skipped = [&](double value) { return !std::isfinite(value) || (left_out && value == *left_out); };
  for (int64_t i = 0; i < count; ++i) {
    const auto value = static_cast<double>(data[i]);
    if (!std::isfinite(value) && moments.not_finite++ == 0) moments.first_not_finite = i;
    if (skipped(value)) continue;
    ++moments.count;
    sum += value;
    moments.minimum = std::min(moments.minimum, value);
    moments.maximum = std::max(moments.maximum, value);
  }
  if (moments.count == 0) return moments;
  moments.mean = sum / static_cast<double>(moments.count);
  for (int64_t i = 0; i < count; ++i) {
    const auto value = static_cast<double>(data[i]);
    if (!skipped(value)) moments.m2 += (value - moments.mean) * (value - moments.mean);
  }
  return moments;
}

Moments compute(const std::byte* data, DType dtype, int64_t count, const double* left_out) {
  return with_type(dtype, [&](auto tag) {
    using T = decltype(tag);
    const T* values = reinterpret_cast<const T*>(data);
    if constexpr (std::is_integral_v<T> && sizeof(T) <= 2) {
      return moments_by_histogram(values, count, left_out);
    } else {
      constexpr int64_t kPart = 4096;
      Moments moments;
      for (int64_t i = 0; i < count; i += kPart)
        moments.merge(moments_of_part(values + i, std::min(kPart, count - i), left_out), i);
      return moments;
    }
  });
}

}  // namespace

double Moments::deviation() const {
  return std::sqrt(variance());
}

void Moments::merge(const Moments& other, int64_t index_offset) {
  if (not_finite == 0 && other.not_finite > 0) first_not_finite = other.first_not_finite + index_offset;
  not_finite += other.not_finite;
  if (other.count == 0) return;
  const auto mine = static_cast<double>(count), theirs = static_cast<double>(other.count);
  const double difference = other.mean - mean;
  mean += difference * theirs / (mine + theirs);
  m2 += other.m2 + difference * difference * mine * theirs / (mine + theirs);
  count += other.count;
  minimum = std::min(minimum, other.minimum);
  maximum = std::max(maximum, other.maximum);
}

Moments Moments::mapped(double scale, double offset) const {
  Moments out = *this;
  if (count == 0) return out;
  out.mean = mean * scale + offset;
  out.m2 = m2 * scale * scale;
  out.minimum = std::min(minimum * scale, maximum * scale) + offset;
  out.maximum = std::max(minimum * scale, maximum * scale) + offset;
  return out;
}

Moments moments_of(const std::byte* data, DType dtype, int64_t count) {
  return compute(data, dtype, count, nullptr);
}

Moments moments_without(const std::byte* data, DType dtype, int64_t count, double left_out) {
  return compute(data, dtype, count, &left_out);
}

}  // namespace vox
