// The small kernels between the passes of norm_cuda.h: partial rows become coefficients.
#include "kernels/norm_cuda.h"
#include "kernels/norm_parts.cuh"
#include "kernels/row_sums.cuh"

namespace vox::cuda {
namespace {

// What shares statistics: `rows` rows from `row` on, of `channels` channels from `channel` on.
struct Set {
  int64_t row = 0, rows = 0;
  int channel = 0, channels = 1, sample = 0, samples = 1;
};

__device__ Set set_of_block(const NormRule& rule, int64_t rows, int n, int c) {
  Set set{int64_t{blockIdx.y} * rows,   rows, static_cast<int>(blockIdx.x) * kColumns, kColumns,
          static_cast<int>(blockIdx.y), 1};
  if (rule.over == NormOver::kBatch) {
    set.rows = rows * n;
    set.samples = n;
  }
  if (rule.over == NormOver::kGroup) {
    set.channels = c / rule.groups;
    set.channel = static_cast<int>(blockIdx.x) * set.channels;
  }
  set.channels = min(set.channels, c - set.channel);
  return set;
}

// Relative to the first row's mean, a (count, mean, M2) adds without a division.
__device__ __forceinline__ void add_moments(const float* row, int c, double pivot, double (&sums)[3]) {
  const double count = row[0], distance = row[c] - pivot;
  sums[0] += count;
  sums[1] += count * distance;
  sums[2] += row[2 * c] + count * distance * distance;
}

__device__ void move_running(const NormRule& rule, int channel, double mean, double m2, double count) {
  const double unbiased = m2 / (count > 1 ? count - 1 : 1);
  const double kept = 1.0 - rule.momentum;
  if (rule.running_mean)
    rule.running_mean[channel] = static_cast<float>(kept * rule.running_mean[channel] + rule.momentum * mean);
  if (rule.running_variance)
    rule.running_variance[channel] =
        static_cast<float>(kept * rule.running_variance[channel] + rule.momentum * unbiased);
}

__device__ void write_state(const NormState& state, const NormRule& rule, int64_t at, int channel, double mean,
                            double rstd) {
  const double scale = rule.gamma ? rule.gamma[channel] * rstd : rstd;
  const double shift = (rule.beta ? rule.beta[channel] : 0.0) - mean * scale;
  if (state.mean) state.mean[at] = static_cast<float>(mean);
  if (state.rstd) state.rstd[at] = static_cast<float>(rstd);
  state.scale[at] = static_cast<float>(scale);
  state.shift[at] = static_cast<float>(shift);
}

// columns 8: a block has 8 channels with statistics of their own; 1: one group.
template <int columns>
__global__ void __launch_bounds__(kFinishThreads, 1)
    finish_moments_kernel(const float* partials, int64_t rows, int n, int c, NormRule rule, NormState state) {
  __shared__ double totals[3][columns], means[columns], rstds[columns];
  const int thread = static_cast<int>(threadIdx.x);
  const Set set = set_of_block(rule, rows, n, c);
  const int column = columns == 1 ? 0 : thread % columns;
  const unsigned width = columns == 1 ? set.channels : columns;
  const float* const first = partials + set.row * 3 * c + set.channel;
  const double pivot = column < set.channels ? first[c + column] : 0;
  double sums[3] = {};
  if (column < set.channels) {
    const unsigned items = static_cast<unsigned>(set.rows) * width;
#pragma unroll 4
    for (unsigned i = threadIdx.x; i < items; i += kFinishThreads)
      add_moments(first + int64_t{i / width} * 3 * c + i % width, c, pivot, sums);
  }
  sum_threads<3, columns>(sums, totals);
  if (thread < columns && thread < set.channels) {
    const double count = totals[0][thread], offset = totals[1][thread] / count;
    double m2 = totals[2][thread] - totals[1][thread] * offset;
    if (m2 < 0) m2 = 0;
    means[thread] = pivot + offset;
    rstds[thread] = 1 / sqrt(m2 / count + rule.epsilon);
    if (rule.over == NormOver::kBatch) move_running(rule, set.channel + thread, means[thread], m2, count);
  }
  __syncthreads();
  for (int i = thread; i < set.samples * set.channels; i += kFinishThreads) {
    const int own = i % set.channels, from = columns == 1 ? 0 : own, channel = set.channel + own;
    const int64_t at = int64_t{set.sample + i / set.channels} * c + channel;
    write_state(state, rule, at, channel, means[from], rstds[from]);
  }
}

__global__ void __launch_bounds__(kFinishThreads, 1)
    moment_sums_kernel(const float* partials, int64_t rows, int c, float* sums) {
  __shared__ double totals[1][kColumns];
  const int thread = static_cast<int>(threadIdx.x),
            channel = static_cast<int>(blockIdx.x) * kColumns + thread % kColumns;
  double sum[1] = {};
  if (channel < c) {
#pragma unroll 8
    for (int64_t r = thread / kColumns; r < rows; r += kFinishThreads / kColumns) {
      const float* const row = partials + r * 3 * c + channel;
      sum[0] += double{row[0]} * row[c];
    }
  }
  sum_threads<1, kColumns>(sum, totals);
  if (thread < kColumns && channel < c) sums[channel] = static_cast<float>(totals[0][thread]);
}

__global__ void state_kernel(const float* mean, const float* variance, int n, int c, NormRule rule, NormState state) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= n * c) return;
  const int channel = i % c;
  write_state(state, rule, i, channel, mean[channel], 1 / sqrt(double{variance[channel]} + rule.epsilon));
}

struct GradFinish {
  NormState state;
  NormRule rule;
  NormGradResult result;
  int64_t rows = 0;
  int n = 1, c = 1;
  double count = 1;         // values that share statistics
  bool flows = true;        // the statistics depend on x
  float* slopes = nullptr;  // gradients of one slope a channel, or what they would be
};

// dx = rstd * (gamma * dz - S1 / N - xhat * S2 / N) with the sums S1, S2 of gamma * dz and gamma * dz * xhat.
__device__ void write_coefficients(const GradFinish& to, int sample, int channel, double sum, double sum_xhat) {
  const int64_t at = int64_t{sample} * to.c + channel, plane = int64_t{to.n} * to.c;
  double b = 0, c = 0;
  if (to.flows) {
    const double rstd = to.state.rstd[at], mean = to.state.mean[at];
    b = -rstd * rstd * sum_xhat / to.count;
    c = -rstd * sum / to.count - b * mean;
  }
  to.result.coefficients[at] = to.state.scale ? to.state.scale[at] : 1.0f;
  to.result.coefficients[plane + at] = static_cast<float>(b);
  to.result.coefficients[2 * plane + at] = static_cast<float>(c);
}

template <int TERMS>
__device__ void write_parameters(const GradFinish& to, int channel, const double (&sums)[TERMS]) {
  if (to.result.dbeta) to.result.dbeta[channel] = static_cast<float>(sums[0]);
  if (to.result.dgamma) to.result.dgamma[channel] = static_cast<float>(sums[1]);
  if constexpr (TERMS == 3) {
    if (to.slopes) to.slopes[channel] = static_cast<float>(sums[2]);
  }
}

// Instance and batch norm: a block has 8 channels of all samples. The warps are divided among up to 32 sets of rows
// that share statistics (a sample each, or all rows of the batch), so that many small sets take no longer than one.
template <int TERMS>
__global__ void __launch_bounds__(kFinishThreads, 1) finish_grad_kernel(const float* partials, GradFinish to) {
  constexpr int kWarps = kFinishThreads / 32;
  __shared__ double of_warps[TERMS][kWarps][kColumns], of_sets[TERMS][kWarps][kColumns];
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, column = thread % kColumns;
  const int channel = static_cast<int>(blockIdx.x) * kColumns + column;
  const bool batch = to.rule.over == NormOver::kBatch, exists = channel < to.c;
  const int sets = batch ? 1 : to.n;
  const int64_t rows = batch ? to.n * to.rows : to.rows;
  const double gamma = exists && to.rule.gamma ? to.rule.gamma[channel] : 1;
  double parameters[TERMS] = {};
  for (int first = 0; first < sets; first += kWarps) {
    const int some = min(sets - first, kWarps), warps_each = kWarps / some, set = warp / warps_each;
    double sums[TERMS] = {};
    if (set < some && exists) {
      const float* from = partials + (first + set) * rows * TERMS * to.c + channel;
#pragma unroll 8
      for (int64_t r = warp % warps_each * 4 + thread % 32 / kColumns; r < rows; r += warps_each * 4) {
#pragma unroll
        for (int term = 0; term < TERMS; ++term) sums[term] += from[(r * TERMS + term) * to.c];
      }
    }
#pragma unroll
    for (int term = 0; term < TERMS; ++term) {
      for (int apart = 16; apart >= kColumns; apart /= 2) sums[term] += __shfl_xor_sync(0xffffffffu, sums[term], apart);
      if (thread % 32 < kColumns) of_warps[term][warp][column] = sums[term];
    }
    __syncthreads();
    if (thread < some * kColumns && exists) {
      const int own = thread / kColumns;
      double totals[TERMS] = {};
      for (int w = 0; w < warps_each; ++w) {
#pragma unroll
        for (int term = 0; term < TERMS; ++term) totals[term] += of_warps[term][own * warps_each + w][column];
      }
#pragma unroll
      for (int term = 0; term < TERMS; ++term) of_sets[term][own][column] = totals[term];
      for (int sample = batch ? 0 : first + own; sample < (batch ? to.n : first + own + 1); ++sample)
        write_coefficients(to, sample, channel, gamma * totals[0], gamma * totals[1]);
    }
    __syncthreads();
    for (int own = 0; own < some && thread < kColumns && exists; ++own) {
#pragma unroll
      for (int term = 0; term < TERMS; ++term) parameters[term] += of_sets[term][own][column];
    }
  }
  if (thread < kColumns && exists) write_parameters<TERMS>(to, channel, parameters);
}

// Group norm, first: sums of each sample and channel, left where the coefficients will be.
template <int TERMS>
__global__ void __launch_bounds__(kFinishThreads, 1) channel_sums_kernel(const float* partials, GradFinish to) {
  __shared__ double totals[TERMS][kColumns];
  const int thread = static_cast<int>(threadIdx.x), sample = static_cast<int>(blockIdx.y);
  const int channel = static_cast<int>(blockIdx.x) * kColumns;
  sum_rows<TERMS>(partials, sample * to.rows, to.rows, channel, to.c, totals);
  const int term = thread / kColumns, column = thread % kColumns;
  if (term < TERMS && channel + column < to.c) {
    const int64_t at = (int64_t{term} * to.n + sample) * to.c + channel + column;
    to.result.coefficients[at] = static_cast<float>(totals[term][column]);
  }
}

// Second: a block has one group of all samples, a warp one sample at a time.
template <int TERMS>
__global__ void __launch_bounds__(kFinishThreads, 1) finish_group_grad_kernel(GradFinish to) {
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, size = to.c / to.rule.groups;
  const int first = static_cast<int>(blockIdx.x) * size;
  const int64_t plane = int64_t{to.n} * to.c;
  const float* const sums_of = to.result.coefficients;
  for (int channel = first + thread; channel < first + size; channel += kFinishThreads) {
    double sums[TERMS] = {};
    for (int sample = 0; sample < to.n; ++sample) {
      for (int term = 0; term < TERMS; ++term) sums[term] += sums_of[term * plane + int64_t{sample} * to.c + channel];
    }
    write_parameters<TERMS>(to, channel, sums);
  }
  __syncthreads();
  for (int sample = thread / 32; sample < to.n; sample += kFinishThreads / 32) {
    double sum = 0, sum_xhat = 0;
    for (int channel = first + lane; channel < first + size; channel += 32) {
      const double gamma = to.rule.gamma ? to.rule.gamma[channel] : 1;
      sum += gamma * sums_of[int64_t{sample} * to.c + channel];
      sum_xhat += gamma * sums_of[plane + int64_t{sample} * to.c + channel];
    }
    for (int apart = 16; apart > 0; apart /= 2) {
      sum += __shfl_xor_sync(0xffffffffu, sum, apart);
      sum_xhat += __shfl_xor_sync(0xffffffffu, sum_xhat, apart);
    }
    __syncwarp();
    for (int channel = first + lane; channel < first + size; channel += 32)
      write_coefficients(to, sample, channel, sum, sum_xhat);
  }
}

// The gradient of a PReLU's only slope, from those that the channels would have.
__global__ void __launch_bounds__(kFinishThreads, 1) single_slope_kernel(const float* slopes, int c, float* dslope) {
  __shared__ double total[1][1];
  double sums[1] = {};
  for (int i = static_cast<int>(threadIdx.x); i < c; i += kFinishThreads) sums[0] += slopes[i];
  sum_threads<1, 1>(sums, total);
  if (threadIdx.x == 0) *dslope = static_cast<float>(total[0][0]);
}

unsigned tiles_of(const Shape5& shape) {
  return static_cast<unsigned>((shape.c + kColumns - 1) / kColumns);
}

template <int TERMS>
void launch_finish_grad(const float* partials, const GradFinish& to, const Shape5& shape, Stream stream) {
  if (to.rule.over != NormOver::kGroup || !to.flows) {
    finish_grad_kernel<TERMS><<<tiles_of(shape), kFinishThreads, 0, stream>>>(partials, to);
    return;
  }
  const dim3 grid{tiles_of(shape), static_cast<unsigned>(shape.n)};
  channel_sums_kernel<TERMS><<<grid, kFinishThreads, 0, stream>>>(partials, to);
  finish_group_grad_kernel<TERMS><<<static_cast<unsigned>(to.rule.groups), kFinishThreads, 0, stream>>>(to);
}

}  // namespace

void finish_moments(const float* partials, int64_t rows, const Shape5& shape, const NormRule& rule,
                    const NormState& state, Stream stream) {
  if (shape.count() == 0) return;
  VOX_ASSERT(shape.n * rows * shape.c <= INT32_MAX);
  const int n = static_cast<int>(shape.n), c = static_cast<int>(shape.c);
  const unsigned samples = rule.over == NormOver::kBatch ? 1u : static_cast<unsigned>(n);
  if (rule.over == NormOver::kGroup) {
    VOX_ASSERT(rule.groups >= 1 && c % rule.groups == 0);
    const dim3 grid{static_cast<unsigned>(rule.groups), samples};
    finish_moments_kernel<1><<<grid, kFinishThreads, 0, stream>>>(partials, rows, n, c, rule, state);
  } else {
    const dim3 grid{tiles_of(shape), samples};
    finish_moments_kernel<kColumns><<<grid, kFinishThreads, 0, stream>>>(partials, rows, n, c, rule, state);
  }
  check_launch("finish_moments");
}

void sums_from_moments(const float* partials, int64_t rows, const Shape5& shape, float* sums, Stream stream) {
  moment_sums_kernel<<<tiles_of(shape), kFinishThreads, 0, stream>>>(partials, shape.n * rows,
                                                                     static_cast<int>(shape.c), sums);
  check_launch("sums_from_moments");
}

void state_from_running(const float* mean, const float* variance, const Shape5& shape, const NormRule& rule,
                        const NormState& state, Stream stream) {
  const int n = static_cast<int>(shape.n), c = static_cast<int>(shape.c), threads = 128;
  if (n * c == 0) return;
  const auto blocks = static_cast<unsigned>((n * c + threads - 1) / threads);
  state_kernel<<<blocks, threads, 0, stream>>>(mean, variance, n, c, rule, state);
  check_launch("state_from_running");
}

void finish_norm_grad(float* partials, int64_t rows, const NormGradInput& input, const NormRule& rule, bool frozen,
                      const NormGradResult& result, Stream stream) {
  const Shape5& shape = input.shape;
  if (shape.count() == 0) return;
  VOX_ASSERT(shape.n * rows * shape.c <= INT32_MAX);
  VOX_ASSERT(result.coefficients && (rule.over != NormOver::kGroup || shape.c % rule.groups == 0));
  const bool prelu = input.act.kind == ActKind::kPrelu;
  GradFinish to{input.state, rule, result, rows, static_cast<int>(shape.n), static_cast<int>(shape.c)};
  to.count = static_cast<double>(shape.voxels());
  if (rule.over == NormOver::kBatch) to.count *= static_cast<double>(shape.n);
  if (rule.over == NormOver::kGroup) to.count *= static_cast<double>(shape.c / rule.groups);
  to.flows = !frozen && input.state.rstd;
  const bool single = result.dslope && !input.act.slope_per_channel;
  // A block writes its own channels of the first row only after it has read them.
  to.slopes = single ? partials + 2 * shape.c : result.dslope;
  if (prelu)
    launch_finish_grad<3>(partials, to, shape, stream);
  else
    launch_finish_grad<2>(partials, to, shape, stream);
  if (prelu && single) single_slope_kernel<<<1, kFinishThreads, 0, stream>>>(to.slopes, to.c, result.dslope);
  check_launch("finish_norm_grad");
}

}  // namespace vox::cuda
