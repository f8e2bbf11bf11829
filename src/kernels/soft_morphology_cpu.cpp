// A row at a time. Backward, the voxels that had the extreme values are sought again and take the gradients. Threads
// own slabs of the input, go through the gradients one slice beyond them, and drop what belongs to others, so that
// every sum has one order.
#include "kernels/soft_morphology.h"

#include <limits>

#include "kernels/pieces.h"
#include "kernels/soft_rows.h"

namespace vox {
namespace {

constexpr int64_t kSlab = 8;  // slices; fixed, so that work is cut the same way for any number of threads

template <class T>
struct Gradients {
  T* in;
  const T* out;
  T factor;
};

// All slices whose gradients may reach a slab, in order.
template <class Backward, class T>
void flow_back(const Gradients<T>& gradients, const T* in, const Extent3& extent, ThreadPool* pool) {
  if (extent.voxels() == 0) return;
  for_each_piece(pool, (extent.z + kSlab - 1) / kSlab, [&](int64_t piece) {
    const int64_t begin = piece * kSlab, end = std::min(begin + kSlab, extent.z);
    Backward slices(gradients, in, extent, begin, end);
    for (int64_t z = std::max<int64_t>(begin - 1, 0); z < std::min(end + 1, extent.z); ++z) slices.flow(z);
  });
}

template <class T>
bool all_zero(const T* row, int64_t count) {
  return std::all_of(row, row + count, [](T value) { return value == 0; });
}

// For each of some voxels: the extreme value nearby, and how far from it the first voxel is that has it.
template <class T>
struct Found {
  std::vector<T> value;
  std::vector<int32_t> offset;
  explicit Found(int64_t count, T fill = 0)
      : value(static_cast<size_t>(count), fill), offset(static_cast<size_t>(count), 0) {}
};

template <class T>
struct FoundRow {
  const T* value;
  const int32_t* offset;
  int32_t step;  // to be added to the offsets
};

template <class Extreme, class T>
void first_of_three(T* value, int32_t* offset, const FoundRow<T>& a, const FoundRow<T>& b, const FoundRow<T>& c,
                    int64_t count) {
  const T *value_a = a.value, *value_b = b.value, *value_c = c.value;
  const int32_t *offset_a = a.offset, *offset_b = b.offset, *offset_c = c.offset;
  const int32_t step_a = a.step, step_b = b.step, step_c = c.step;
#pragma GCC ivdep
  for (int64_t x = 0; x < count; ++x) {
    const bool second = Extreme::better(value_b[x], value_a[x]);
    const T best = second ? value_b[x] : value_a[x];
    const int32_t where = second ? offset_b[x] + step_b : offset_a[x] + step_a;
    const bool third = Extreme::better(value_c[x], best);
    value[x] = third ? value_c[x] : best;
    offset[x] = third ? offset_c[x] + step_c : where;
  }
}

// Through 3x3x3 voxels: to the first that has the extreme value. That is sought along x, then y, then z; of equal ones
// the earlier is kept each time, so the first of all is found.
template <class Extreme, class T>
class CubeBackward {
 public:
  CubeBackward(const Gradients<T>& gradients, const T* in, const Extent3& extent, int64_t begin, int64_t end)
      : gradients_(gradients),
        in_(in),
        extent_(extent),
        slice_(extent.y * extent.x),
        begin_(begin * slice_),
        end_(end * slice_),
        none_(extent.x, Extreme::template worst<T>()),
        line_(extent.x + 2, Extreme::template worst<T>()),
        rows_(3, Found<T>(extent.x)),
        planes_(3, Found<T>(slice_)),
        row_(extent.x) {}

  void flow(int64_t z) {
    for (int64_t near = std::max<int64_t>(z - 1, 0); near < std::min(z + 2, extent_.z); ++near) seek_in_slice(near);
    const int32_t step = static_cast<int32_t>(slice_);
    for (int64_t y = 0; y < extent_.y; ++y) {
      const int64_t first = z * slice_ + y * extent_.x;
      if (all_zero(gradients_.out + first, extent_.x)) continue;
      const auto plane = [&](int64_t at, int32_t to) {
        if (at < 0 || at >= extent_.z) return FoundRow<T>{none_.value.data(), none_.offset.data(), 0};
        const Found<T>& found = planes_[static_cast<size_t>(at % 3)];
        return FoundRow<T>{found.value.data() + y * extent_.x, found.offset.data() + y * extent_.x, to};
      };
      first_of_three<Extreme>(row_.value.data(), row_.offset.data(), plane(z - 1, -step), plane(z, 0),
                              plane(z + 1, step), extent_.x);
      for (int64_t x = 0; x < extent_.x; ++x) {
        const int64_t to = first + x + row_.offset[static_cast<size_t>(x)];
        if (to >= begin_ && to < end_) gradients_.in[to] += gradients_.factor * gradients_.out[first + x];
      }
    }
  }

 private:
  void seek_in_slice(int64_t z) {
    if (z <= sought_) return;
    sought_ = z;
    Found<T>& plane = planes_[static_cast<size_t>(z % 3)];
    seek_in_row(z, 0);
    const int32_t step = static_cast<int32_t>(extent_.x);
    for (int64_t y = 0; y < extent_.y; ++y) {
      if (y + 1 < extent_.y) seek_in_row(z, y + 1);
      const auto row = [&](int64_t at, int32_t to) {
        const Found<T>& found = at < 0 || at >= extent_.y ? none_ : rows_[static_cast<size_t>(at % 3)];
        return FoundRow<T>{found.value.data(), found.offset.data(), to};
      };
      first_of_three<Extreme>(plane.value.data() + y * extent_.x, plane.offset.data() + y * extent_.x,
                              row(y - 1, -step), row(y, 0), row(y + 1, step), extent_.x);
    }
  }
  void seek_in_row(int64_t z, int64_t y) {
    std::copy_n(in_ + z * slice_ + y * extent_.x, extent_.x, line_.value.data() + 1);
    const T* value = line_.value.data();
    const int32_t* zeros = line_.offset.data();
    Found<T>& row = rows_[static_cast<size_t>(y % 3)];
    first_of_three<Extreme>(row.value.data(), row.offset.data(), FoundRow<T>{value, zeros, -1},
                            FoundRow<T>{value + 1, zeros, 0}, FoundRow<T>{value + 2, zeros, 1}, extent_.x);
  }

  const Gradients<T> gradients_;
  const T* in_;
  const Extent3 extent_;
  const int64_t slice_, begin_, end_;  // the slab's voxels
  const Found<T> none_;                // a row beyond the volume
  Found<T> line_;
  std::vector<Found<T>> rows_, planes_;  // along x, and along x and y: those of the last three rows and slices
  Found<T> row_;
  int64_t sought_ = -1;
};

// Through a voxel and its neighbours along z, y and x: the least of each axis by itself, then the least of the axes. Of
// equal axes, z and y share, and both of them share with x.
template <class T>
class CrossBackward {
 public:
  CrossBackward(const Gradients<T>& gradients, const T* in, const Extent3& extent, int64_t begin, int64_t end)
      : gradients_(gradients),
        in_(in),
        extent_(extent),
        begin_(begin),
        end_(end),
        none_(static_cast<size_t>(extent.x), std::numeric_limits<T>::infinity()),
        padded_(static_cast<size_t>(extent.x + 2), std::numeric_limits<T>::infinity()) {
    for (std::vector<T>& part : parts_) part.resize(static_cast<size_t>(extent.x));
  }

  void flow(int64_t z) {
    for (int64_t y = 0; y < extent_.y; ++y) flow(z, y);
  }

 private:
  enum Part { kAbove, kBefore, kLeft, kHere, kRight, kAfter, kBelow };

  void flow(int64_t z, int64_t y) {
    const int64_t width = extent_.x, first = (z * extent_.y + y) * width;
    if (all_zero(gradients_.out + first, width)) return;
    std::copy_n(in_ + first, width, padded_.data() + 1);
    divide(z, y);
    const auto add = [&](int64_t to_z, int64_t to_y, int64_t begin, int64_t end, int64_t step,
                         const std::vector<T>& part) {
      if (to_z < begin_ || to_z >= end_ || to_y < 0 || to_y >= extent_.y) return;
      T* to = gradients_.in + (to_z * extent_.y + to_y) * width + step;
      for (int64_t x = begin; x < end; ++x) to[x] += part[static_cast<size_t>(x)];
    };
    add(z - 1, y, 0, width, 0, parts_[kAbove]);
    add(z, y - 1, 0, width, 0, parts_[kBefore]);
    add(z, y, 1, width, -1, parts_[kLeft]);
    add(z, y, 0, width, 0, parts_[kHere]);
    add(z, y, 0, width - 1, 1, parts_[kRight]);
    add(z, y + 1, 0, width, 0, parts_[kAfter]);
    add(z + 1, y, 0, width, 0, parts_[kBelow]);
  }

  const T* row(int64_t z, int64_t y) const {
    const bool inside = z >= 0 && z < extent_.z && y >= 0 && y < extent_.y;
    return inside ? in_ + (z * extent_.y + y) * extent_.x : none_.data();
  }

  void divide(int64_t z, int64_t y) {
    const T *above = row(z - 1, y), *below = row(z + 1, y), *before = row(z, y - 1), *after = row(z, y + 1);
    const T *left = padded_.data(), *here = left + 1, *right = left + 2;
    const T *out = gradients_.out + (z * extent_.y + y) * extent_.x, factor = gradients_.factor, half = T{0.5};
    T *to_above = parts_[kAbove].data(), *to_before = parts_[kBefore].data(), *to_left = parts_[kLeft].data();
    T *to_here = parts_[kHere].data(), *to_right = parts_[kRight].data(), *to_after = parts_[kAfter].data();
    T* to_below = parts_[kBelow].data();
    // Arithmetic in place of branches, so that the loop becomes vector instructions.
    const auto one_if = [](bool condition) { return condition ? T{1} : T{0}; };
    const auto share = [&](T mine, T other) { return half * (one_if(mine < other) + one_if(mine <= other)); };
#pragma GCC ivdep
    for (int64_t x = 0; x < extent_.x; ++x) {
      const T least_z = Least::of(Least::of(above[x], here[x]), below[x]);
      const T least_y = Least::of(Least::of(before[x], here[x]), after[x]);
      const T least_x = Least::of(Least::of(left[x], here[x]), right[x]);
      const T least_zy = Least::of(least_z, least_y), gradient = factor * out[x];
      const T of_x = gradient * share(least_x, least_zy), of_zy = gradient * share(least_zy, least_x);
      const T of_z = of_zy * share(least_z, least_y), of_y = of_zy * share(least_y, least_z);
      to_above[x] = of_z * one_if(above[x] == least_z);
      to_before[x] = of_y * one_if(before[x] == least_y);
      to_left[x] = of_x * one_if(left[x] == least_x);
      const T here_z = (of_z - to_above[x]) * one_if(here[x] == least_z);
      const T here_y = (of_y - to_before[x]) * one_if(here[x] == least_y);
      const T here_x = (of_x - to_left[x]) * one_if(here[x] == least_x);
      to_here[x] = here_z + here_y + here_x;
      to_right[x] = of_x - to_left[x] - here_x;
      to_after[x] = of_y - to_before[x] - here_y;
      to_below[x] = of_z - to_above[x] - here_z;
    }
  }

  const Gradients<T> gradients_;
  const T* in_;
  const Extent3 extent_;
  const int64_t begin_, end_;  // slices of the slab
  const std::vector<T> none_;
  std::vector<T> padded_;
  std::vector<T> parts_[7];  // of a row's gradients
};

template <class T>
void erode_row_by_cross(T* out, const T* in, const Extent3& extent, int64_t z, int64_t y) {
  const T* here = row_near(in, extent, z, y);
  extreme_along<Least>(out, here, extent.x);
  const T *above = row_near(in, extent, z - 1, y), *below = row_near(in, extent, z + 1, y);
  const T *before = row_near(in, extent, z, y - 1), *after = row_near(in, extent, z, y + 1);
  for (int64_t x = 0; x < extent.x; ++x)
    out[x] = Least::of(out[x], Least::of(Least::of(above[x], below[x]), Least::of(before[x], after[x])));
}

}  // namespace

template <class T>
void soft_erode_cpu(T* out, const T* in, const Extent3& extent, SoftErosion erosion, ThreadPool* pool) {
  if (extent.voxels() == 0) return;
  for_each_piece(pool, extent.z, [&](int64_t z) {
    T* slice = out + z * extent.y * extent.x;
    if (erosion == SoftErosion::kCube)
      for_each_cube_row<Least>(in, extent, z,
                               [&](int64_t y, const T* row) { std::copy_n(row, extent.x, slice + y * extent.x); });
    else
      for (int64_t y = 0; y < extent.y; ++y) erode_row_by_cross(slice + y * extent.x, in, extent, z, y);
  });
}

template <class T>
void soft_dilate_cpu(T* out, const T* in, const Extent3& extent, ThreadPool* pool) {
  if (extent.voxels() == 0) return;
  for_each_piece(pool, extent.z, [&](int64_t z) {
    T* slice = out + z * extent.y * extent.x;
    for_each_cube_row<Largest>(in, extent, z,
                               [&](int64_t y, const T* row) { std::copy_n(row, extent.x, slice + y * extent.x); });
  });
}

template <class T>
void soft_erode_backward_cpu(T* grad_in, const T* grad_out, const T* in, const Extent3& extent, SoftErosion erosion,
                             T factor, ThreadPool* pool) {
  const Gradients<T> gradients{grad_in, grad_out, factor};
  if (erosion == SoftErosion::kCross)
    flow_back<CrossBackward<T>>(gradients, in, extent, pool);
  else
    flow_back<CubeBackward<Least, T>>(gradients, in, extent, pool);
}

template <class T>
void soft_dilate_backward_cpu(T* grad_in, const T* grad_out, const T* in, const Extent3& extent, T factor,
                              ThreadPool* pool) {
  flow_back<CubeBackward<Largest, T>>(Gradients<T>{grad_in, grad_out, factor}, in, extent, pool);
}

#define VOX_INSTANTIATE(T)                                                                                    \
  template void soft_erode_cpu(T*, const T*, const Extent3&, SoftErosion, ThreadPool*);                       \
  template void soft_dilate_cpu(T*, const T*, const Extent3&, ThreadPool*);                                   \
  template void soft_erode_backward_cpu(T*, const T*, const T*, const Extent3&, SoftErosion, T, ThreadPool*); \
  template void soft_dilate_backward_cpu(T*, const T*, const T*, const Extent3&, T, ThreadPool*);
VOX_INSTANTIATE(float)
VOX_INSTANTIATE(double)
#undef VOX_INSTANTIATE

}  // namespace vox
