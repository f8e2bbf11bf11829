// Sizes, positions and boxes in voxels. Axes are always z, y, x.
#pragma once

#include <algorithm>
#include <cstdint>
#include <ostream>

namespace vox {

struct Extent3 {
  int64_t z = 0, y = 0, x = 0;
  int64_t voxels() const { return z * y * x; }
  bool operator==(const Extent3&) const = default;
  int64_t operator[](int axis) const { return axis == 0 ? z : axis == 1 ? y : x; }
  int64_t& operator[](int axis) { return axis == 0 ? z : axis == 1 ? y : x; }
};

inline Extent3 operator+(const Extent3& a, const Extent3& b) {
  return {a.z + b.z, a.y + b.y, a.x + b.x};
}
inline Extent3 operator-(const Extent3& a, const Extent3& b) {
  return {a.z - b.z, a.y - b.y, a.x - b.x};
}
inline Extent3 min(const Extent3& a, const Extent3& b) {
  return {std::min(a.z, b.z), std::min(a.y, b.y), std::min(a.x, b.x)};
}
inline Extent3 max(const Extent3& a, const Extent3& b) {
  return {std::max(a.z, b.z), std::max(a.y, b.y), std::max(a.x, b.x)};
}
inline std::ostream& operator<<(std::ostream& out, const Extent3& e) {
  return out << e.z << 'x' << e.y << 'x' << e.x;
}

struct Box3 {  // half open: begin is inside, end is not
  Extent3 begin, end;
  Extent3 extent() const { return end - begin; }
  int64_t voxels() const { return empty() ? 0 : extent().voxels(); }
  bool empty() const { return end.z <= begin.z || end.y <= begin.y || end.x <= begin.x; }
  bool contains(const Box3& inner) const { return min(begin, inner.begin) == begin && max(end, inner.end) == end; }
  bool operator==(const Box3&) const = default;
};

inline Box3 whole(const Extent3& extent) {
  return {{0, 0, 0}, extent};
}
inline Box3 intersect(const Box3& a, const Box3& b) {
  return {max(a.begin, b.begin), min(a.end, b.end)};
}
inline std::ostream& operator<<(std::ostream& out, const Box3& b) {
  return out << '[' << b.begin.z << ':' << b.end.z << ',' << b.begin.y << ':' << b.end.y << ',' << b.begin.x << ':'
             << b.end.x << ']';
}

struct Spacing3 {  // size of a voxel
  double z_mm = 1, y_mm = 1, x_mm = 1;
  bool operator==(const Spacing3&) const = default;
  double operator[](int axis) const { return axis == 0 ? z_mm : axis == 1 ? y_mm : x_mm; }
  double& operator[](int axis) { return axis == 0 ? z_mm : axis == 1 ? y_mm : x_mm; }
};
inline std::ostream& operator<<(std::ostream& out, const Spacing3& s) {
  return out << s.z_mm << 'x' << s.y_mm << 'x' << s.x_mm;
}

}  // namespace vox
