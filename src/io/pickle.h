// Python's pickle, protocols 2 to 5 as torch.save writes them, read without executing anything. A pickle is a program
// for a small stack machine that may call any function of Python; this machine knows plain values and containers, and
// what a handful of harmless names stand for. Every other name is refused. Nothing is recursive, and every
// instruction takes memory in proportion to its own bytes, so that no file can exhaust the stack or the memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace vox {

struct PickleValue {
  enum class Kind {
    kNone,
    kBool,
    kInteger,
    kNumber,
    kText,
    kBytes,
    kTuple,
    kList,
    kDict,  // items are key, value, key, value, ...
    kSet,
    kGlobal,   // text is "module.name"; one of the known names
    kObject,   // made by calling the global `text` with the arguments `items`; not executed
    kStorage,  // a persistent id: items are what torch.save says of a storage
  };
  Kind kind = Kind::kNone;
  int64_t integer = 0;  // also of kBool
  double number = 0;
  std::string text;          // also the raw bytes of kBytes, and of integers beyond 64 bits
  std::vector<int> items{};  // indices of other values; a value may stand in many places, even inside itself
};

struct PickleRules {
  std::function<bool(const std::string& name)> known;     // globals that may be named ("torch.FloatStorage")
  std::function<bool(const std::string& name)> callable;  // those of them that may be called
};

class Pickle {
 public:
  // `what` (a file and a member of it) begins every error. `size` of bytes(): how much was read.
  Pickle(std::span<const std::byte> bytes, const std::string& what, const PickleRules& rules);

  const PickleValue& at(int index) const { return values_[static_cast<size_t>(index)]; }
  const PickleValue& root() const { return at(root_); }
  size_t size() const { return values_.size(); }
  size_t bytes_read() const { return bytes_read_; }
  // The value of a text key of a dict; null where absent. Of several equal keys the last counts, as in Python.
  const PickleValue* find(const PickleValue& dict, const std::string& key) const;

 private:
  friend class PickleMachine;
  std::vector<PickleValue> values_;
  int root_ = 0;
  size_t bytes_read_ = 0;
};

}  // namespace vox
