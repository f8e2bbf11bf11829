// How an options struct tells its fields: name, value, and what the value may be. Everything that handles options
// (reading, writing, the reference page) is a Visitor, so a new option is one field and one line in describe().
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/shape.h"
#include "config/tree.h"

namespace vox {

struct NamedValue {  // a word that stands for a number: auto for -1
  const char* name;
  int64_t value;
};

enum class Form {
  kPlain,
  kPath,        // relative to the file it is written in
  kRange,       // two ascending numbers
  kIterations,  // a number, auto, or a duration
};

// What a field may hold, beside its type. Bounds hold for each item of a list.
struct Spec {
  const char* meaning = "";
  const char* unit = "";
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  bool above_min = false;              // min itself is not allowed
  std::vector<const char*> choices{};  // of a text; empty: any
  std::optional<NamedValue> named{};
  size_t min_items = 0;
  size_t max_items = std::numeric_limits<size_t>::max();
  Form form = Form::kPlain;
};

class Visitor;

class StructList {  // a list of structs that describe themselves: loss.terms, data.cases
 public:
  virtual ~StructList() = default;
  virtual size_t size() const = 0;
  virtual void reset(size_t count) = 0;  // that many structs at their defaults
  virtual void describe(size_t index, Visitor& visitor) = 0;
  virtual Tree* params(size_t index) = 0;  // takes the keys the struct does not know; null: those are errors
};

using FieldRef = std::variant<bool*, int64_t*, double*, std::string*, Extent3*, std::vector<int64_t>*,
                              std::vector<double>*, std::vector<std::string>*, std::vector<Extent3>*, StructList*>;

class Visitor {
 public:
  virtual ~Visitor() = default;

  template <class T>
  void field(const std::string& name, T& value, const Spec& spec) {
    visit(prefix_ + name, FieldRef(&value), spec);
  }
  template <class T>
  void section(const std::string& name, T& value) {
    const std::string outer = std::exchange(prefix_, prefix_ + name + ".");
    value.describe(*this);
    prefix_ = outer;
  }
  template <class T>
  void list(const std::string& name, std::vector<T>& values, const Spec& spec);

 protected:
  virtual void visit(const std::string& key, const FieldRef& field, const Spec& spec) = 0;
  std::string prefix_;  // "data.synth."
};

template <class T>
class StructListOf final : public StructList {
 public:
  explicit StructListOf(std::vector<T>& values) : values_(values) {}
  size_t size() const override { return values_.size(); }
  void reset(size_t count) override { values_.assign(count, T{}); }
  void describe(size_t index, Visitor& visitor) override { values_[index].describe(visitor); }
  Tree* params([[maybe_unused]] size_t index) override {
    if constexpr (requires(T& item) { item.params; })
      return &values_[index].params;
    else
      return nullptr;
  }

 private:
  std::vector<T>& values_;
};

template <class T>
void Visitor::list(const std::string& name, std::vector<T>& values, const Spec& spec) {
  StructListOf<T> structs(values);
  visit(prefix_ + name, FieldRef(static_cast<StructList*>(&structs)), spec);
}

}  // namespace vox
