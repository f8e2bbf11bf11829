#include "io/orientation.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

namespace vox {
namespace {

using Matrix3 = std::array<std::array<double, 3>, 3>;

Matrix3 unit_columns(const Affine& affine) {
  Matrix3 out{};
  for (size_t column = 0; column < 3; ++column) {
    const double length = std::hypot(affine[0][column], affine[1][column], affine[2][column]);
    for (size_t row = 0; row < 3; ++row) out[row][column] = length > 0 ? affine[row][column] / length : 0;
  }
  return out;
}

Matrix3 cofactors(const Matrix3& m) {
  Matrix3 out{};
  for (size_t i = 0; i < 3; ++i) {
    const size_t i1 = (i + 1) % 3, i2 = (i + 2) % 3;
    for (size_t j = 0; j < 3; ++j) {
      const size_t j1 = (j + 1) % 3, j2 = (j + 2) % 3;
      out[i][j] = m[i1][j1] * m[i2][j2] - m[i1][j2] * m[i2][j1];
    }
  }
  return out;
}

// The nearest orthogonal matrix, by Newton's iteration (Higham 1986): what is left of an affine once zoom and shear are
// taken out. A singular matrix has none and is returned as it is.
Matrix3 without_shear(Matrix3 m) {
  constexpr int kIterations = 30;
  const Matrix3 original = m;
  for (int iteration = 0; iteration < kIterations; ++iteration) {
    const Matrix3 cofactor = cofactors(m);
    const double determinant = m[0][0] * cofactor[0][0] + m[0][1] * cofactor[0][1] + m[0][2] * cofactor[0][2];
    if (std::abs(determinant) < 1e-9) return original;
    for (size_t i = 0; i < 3; ++i)
      for (size_t j = 0; j < 3; ++j) m[i][j] = 0.5 * (m[i][j] + cofactor[i][j] / determinant);
  }
  return m;
}

struct Direction {
  int world = -1;  // 0, 1, 2: along world x, y, z
  bool backwards = false;
};

// The clearest voxel axis chooses its world axis first, then the next clearest among those that are left.
std::array<Direction, 3> directions(const Affine& affine) {
  const Matrix3 rotation = without_shear(unit_columns(affine));
  std::array<Direction, 3> found{};
  std::array<bool, 3> taken{};
  const auto clearness = [&](size_t column) {
    return std::max({std::abs(rotation[0][column]), std::abs(rotation[1][column]), std::abs(rotation[2][column])});
  };
  std::array<size_t, 3> order{0, 1, 2};
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return clearness(a) > clearness(b); });
  for (const size_t column : order) {
    double largest = -1;
    for (size_t row = 0; row < 3; ++row) {
      if (taken[row] || std::abs(rotation[row][column]) <= largest) continue;
      largest = std::abs(rotation[row][column]);
      found[column] = {static_cast<int>(row), rotation[row][column] < 0};
    }
    taken[static_cast<size_t>(found[column].world)] = true;
  }
  return found;
}

Extent3 permuted(const Extent3& extent, const Reorientation& how) {
  return {extent[how.axes[0]], extent[how.axes[1]], extent[how.axes[2]]};
}

// Columns of an affine are x, y, z, axes are numbered z, y, x.
Affine reoriented(const Affine& affine, const Extent3& extent, const Reorientation& how) {
  Affine out = affine;
  for (int axis = 0; axis < 3; ++axis) {
    const size_t to = static_cast<size_t>(2 - axis), from = static_cast<size_t>(2 - how.axes[axis]);
    for (size_t row = 0; row < 3; ++row) {
      out[row][to] = how.flip[axis] ? -affine[row][from] : affine[row][from];
      if (how.flip[axis]) out[row][3] += affine[row][from] * static_cast<double>(extent[how.axes[axis]] - 1);
    }
  }
  return out;
}

struct Walk {  // elements of the source, along each axis of the result
  int64_t first = 0;
  std::array<int64_t, 3> step{};
};

Walk plan_walk(const Extent3& source, const Reorientation& how) {
  const std::array<int64_t, 3> stride{source.y * source.x, source.x, 1};
  Walk walk;
  for (size_t axis = 0; axis < 3; ++axis) {
    const int64_t along = stride[static_cast<size_t>(how.axes[axis])];
    walk.step[axis] = how.flip[axis] ? -along : along;
    if (how.flip[axis]) walk.first += along * (source[how.axes[axis]] - 1);
  }
  return walk;
}

template <class T>
void copy_channel(T* out, const T* in, const Extent3& extent, const Walk& walk) {
  for (int64_t z = 0; z < extent.z; ++z) {
    for (int64_t y = 0; y < extent.y; ++y) {
      const T* from = in + walk.first + z * walk.step[0] + y * walk.step[1];
      for (int64_t x = 0; x < extent.x; ++x) *out++ = from[x * walk.step[2]];
    }
  }
}

}  // namespace

std::string axis_codes(const Affine& affine) {
  constexpr const char* kForwards = "RAS";
  constexpr const char* kBackwards = "LPI";
  std::string codes;
  for (const Direction& direction : directions(affine))
    codes += (direction.backwards ? kBackwards : kForwards)[direction.world];
  return codes;
}

Reorientation to_ras(const Affine& affine) {
  Reorientation how;
  const std::array<Direction, 3> found = directions(affine);
  for (int column = 0; column < 3; ++column) {
    const Direction& direction = found[static_cast<size_t>(column)];
    how.axes[2 - direction.world] = 2 - column;
    how.flip[2 - direction.world] = direction.backwards;
  }
  return how;
}

Reorientation inverse(const Reorientation& reorientation) {
  Reorientation back;
  for (int axis = 0; axis < 3; ++axis) {
    back.axes[reorientation.axes[axis]] = axis;
    back.flip[reorientation.axes[axis]] = reorientation.flip[axis];
  }
  return back;
}

VolumeInfo apply(const VolumeInfo& info, const Reorientation& reorientation) {
  VolumeInfo out = info;
  out.extent = permuted(info.extent, reorientation);
  out.chunk = permuted(info.chunk, reorientation);
  if (info.spacing) {
    for (int axis = 0; axis < 3; ++axis) (*out.spacing)[axis] = (*info.spacing)[reorientation.axes[axis]];
  }
  if (info.affine) out.affine = reoriented(*info.affine, info.extent, reorientation);
  return out;
}

Volume apply(const Volume& volume, const Reorientation& reorientation) {
  Volume out = allocate_volume(apply(volume.info, reorientation));
  const Walk walk = plan_walk(volume.info.extent, reorientation);
  const int64_t voxels = volume.info.extent.voxels();
  with_type(volume.info.dtype, [&](auto zero) {
    using T = decltype(zero);
    for (int64_t channel = 0; channel < volume.info.channels; ++channel)
      copy_channel(out.data.as<T>() + channel * voxels, volume.as<T>() + channel * voxels, out.info.extent, walk);
  });
  return out;
}

}  // namespace vox
