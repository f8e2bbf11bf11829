#include "kernels/soft_skeleton.h"

#include <vector>

#include "base/error.h"
#include "kernels/pieces.h"
#include "kernels/soft_rows.h"

namespace vox {
namespace {

template <class T>
T relu(T value) {
  return value > 0 ? value : T{0};
}

// The map at two levels that follow each other, and the skeleton before the first of them.
template <class T>
class Levels {
 public:
  Levels(const T* in, const Extent3& extent, const SoftSkeletonOptions& options, ThreadPool* pool, T* skeleton)
      : in_(in), extent_(extent), options_(options), pool_(pool), skeleton_(skeleton) {
    for (std::vector<T>& level : eroded_) level.resize(static_cast<size_t>(extent.voxels()));
  }

  int count() const { return options_.iterations + (options_.erosion == SoftErosion::kCross ? 1 : 0); }
  const T* current() const { return level_ == 0 ? in_ : eroded_[level_ % 2].data(); }
  const T* next() const { return eroded_[(level_ + 1) % 2].data(); }

  void start() {
    level_ = 0;
    std::fill_n(skeleton_, extent_.voxels(), T{0});
    erode();
  }
  void advance() {
    for_each_row_of_delta([&](int64_t begin, const T* delta) { add(skeleton_ + begin, delta); });
    ++level_;
    erode();
  }
  void go_to(int level) {
    start();
    while (level_ < level) advance();
  }
  void finish() {  // the last level needs no further erosion
    for_each_row_of_delta([&](int64_t begin, const T* delta) { add(skeleton_ + begin, delta); });
  }

  // From the gradient of the skeleton after this level to that before it, and to that of delta.
  void flow_back(T* grad_skeleton, T* grad_delta) const {
    const bool cross = options_.erosion == SoftErosion::kCross;
    for_each_row_of_delta([&](int64_t begin, const T* delta) {
      const T* before = skeleton_ + begin;
      T *grad = grad_skeleton + begin, *out = grad_delta + begin;
      for (int64_t x = 0; x < extent_.x; ++x) {
        const bool grows = delta[x] > 0 && (cross ? delta[x] - before[x] * delta[x] : delta[x] - before[x]) > 0;
        const T to_delta = cross ? 1 - before[x] : T{1}, to_before = cross ? 1 - delta[x] : T{0};
        out[x] = grows ? grad[x] * to_delta : T{0};
        grad[x] = grows ? grad[x] * to_before : grad[x];
      }
    });
  }

 private:
  void erode() { soft_erode_cpu(eroded_[(level_ + 1) % 2].data(), current(), extent_, options_.erosion, pool_); }

  void add(T* skeleton, const T* delta) const {
    if (options_.erosion == SoftErosion::kCross)
      for (int64_t x = 0; x < extent_.x; ++x) skeleton[x] += relu(delta[x] - skeleton[x] * delta[x]);
    else
      for (int64_t x = 0; x < extent_.x; ++x) skeleton[x] += relu(delta[x] - skeleton[x]);
  }

  // Calls visit(first voxel, what the opening takes away) for each row, on the pool.
  template <class Visit>
  void for_each_row_of_delta(Visit visit) const {
    for_each_piece(pool_, extent_.z, [&](int64_t z) {
      std::vector<T> delta(static_cast<size_t>(extent_.x));
      for_each_cube_row<Largest>(next(), extent_, z, [&](int64_t y, const T* opened) {
        const int64_t begin = (z * extent_.y + y) * extent_.x;
        const T* value = current() + begin;
        for (int64_t x = 0; x < extent_.x; ++x) delta[static_cast<size_t>(x)] = relu(value[x] - opened[x]);
        visit(begin, static_cast<const T*>(delta.data()));
      });
    });
  }

  const T* in_;
  const Extent3 extent_;
  const SoftSkeletonOptions options_;
  ThreadPool* pool_;
  T* skeleton_;
  int level_ = 0;
  std::vector<T> eroded_[2];
};

}  // namespace

template <class T>
void soft_skeleton_cpu(T* out, const T* in, const Extent3& extent, const SoftSkeletonOptions& options,
                       ThreadPool* pool) {
  VOX_ASSERT(options.iterations >= 0 && out != in);
  std::fill_n(out, extent.voxels(), T{0});
  Levels<T> levels(in, extent, options, pool, out);
  if (extent.voxels() == 0 || levels.count() == 0) return;
  levels.go_to(levels.count() - 1);
  levels.finish();
}

template <class T>
void soft_skeleton_backward_cpu(T* grad_in, const T* grad_out, const T* in, const Extent3& extent,
                                const SoftSkeletonOptions& options, ThreadPool* pool) {
  VOX_ASSERT(options.iterations >= 0 && grad_in != grad_out);
  const size_t voxels = static_cast<size_t>(extent.voxels());
  std::fill_n(grad_in, voxels, T{0});
  std::vector<T> skeleton(voxels);
  Levels<T> levels(in, extent, options, pool, skeleton.data());
  if (voxels == 0 || levels.count() == 0) return;
  std::vector<T> grad_skeleton(grad_out, grad_out + voxels), other(voxels, T{0});
  // Gradients of the map at this level and at the next: level 0 ends up in grad_in.
  T *grad = levels.count() % 2 == 1 ? grad_in : other.data(), *grad_next = grad == grad_in ? other.data() : grad_in;
  for (int level = levels.count() - 1; level >= 0; --level) {
    levels.go_to(level);
    levels.flow_back(grad_skeleton.data(), grad);
    soft_dilate_backward_cpu(grad_next, grad, levels.next(), extent, T{-1}, pool);
    soft_erode_backward_cpu(grad, grad_next, levels.current(), extent, options.erosion, T{1}, pool);
    std::swap(grad, grad_next);
  }
}

#define VOX_INSTANTIATE(T)                                                                                     \
  template void soft_skeleton_cpu(T*, const T*, const Extent3&, const SoftSkeletonOptions&, ThreadPool*);      \
  template void soft_skeleton_backward_cpu(T*, const T*, const T*, const Extent3&, const SoftSkeletonOptions&, \
                                           ThreadPool*);
VOX_INSTANTIATE(float)
VOX_INSTANTIATE(double)
#undef VOX_INSTANTIATE

}  // namespace vox
