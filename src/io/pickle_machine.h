// The stack machine that runs a pickle; io/pickle.h says what it refuses.
#pragma once

#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "io/pickle.h"
#include "io/pickle_opcodes.h"

namespace vox {

// One run over the instructions. Stack entries are indices of values; kMark separates them as MARK asks.
class PickleMachine {
 public:
  PickleMachine(std::span<const std::byte> bytes, const std::string& what, const PickleRules& rules, Pickle& out)
      : bytes_(bytes), what_(what), rules_(rules), values_(out.values_) {}

  int run() {
    while (true) {
      begun_ = at_;
      const auto opcode = static_cast<Opcode>(take<uint8_t>());
      if (opcode == Opcode::kStop) return pop();
      step(opcode);
    }
  }
  size_t bytes_read() const { return at_; }

 private:
  static constexpr int kMark = -1;
  static constexpr size_t kMostArguments = 16;
  static constexpr size_t kMostValues = size_t{1} << 22;

  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    throw Error(concat(what_, ": at byte ", begun_, " of the pickle: ", parts...));
  }

  // ---- bytes ----
  std::string take_text(uint64_t count) {
    if (count > bytes_.size() - at_) fail("it breaks off; the file is cut or damaged");
    std::string text(reinterpret_cast<const char*>(bytes_.data()) + at_, static_cast<size_t>(count));
    at_ += static_cast<size_t>(count);
    return text;
  }
  template <class T>
  T take() {
    if (sizeof(T) > bytes_.size() - at_) fail("it breaks off; the file is cut or damaged");
    T value;
    std::memcpy(&value, bytes_.data() + at_, sizeof(T));
    at_ += sizeof(T);
    return value;
  }
  std::string take_line() {
    size_t end = at_;
    while (end < bytes_.size() && bytes_[end] != std::byte{'\n'}) ++end;
    if (end == bytes_.size()) fail("a line breaks off; the file is cut or damaged");
    const std::string line = take_text(end - at_);
    ++at_;
    return line;
  }

  // ---- values ----
  void push(PickleValue value) {
    if (values_.size() >= kMostValues) fail("it holds more than ", kMostValues, " values; no file of weights does");
    values_.push_back(std::move(value));
    stack_.push_back(static_cast<int>(values_.size()) - 1);
  }
  void push(PickleValue::Kind kind, std::vector<int> items = {}) {
    push({.kind = kind, .text = {}, .items = std::move(items)});
  }
  void push_integer(int64_t integer) { push({.kind = PickleValue::Kind::kInteger, .integer = integer, .text = {}}); }
  void push_bool(bool value) { push({.kind = PickleValue::Kind::kBool, .integer = value ? 1 : 0, .text = {}}); }
  void push_text(PickleValue::Kind kind, std::string text) { push({.kind = kind, .text = std::move(text)}); }

  int pop() {
    if (stack_.empty() || stack_.back() == kMark) fail("it takes a value that is not there; the file is damaged");
    const int index = stack_.back();
    stack_.pop_back();
    return index;
  }
  int top() {
    const int index = pop();
    stack_.push_back(index);
    return index;
  }
  PickleValue& value(int index) { return values_[static_cast<size_t>(index)]; }
  std::vector<int> pop_to_mark() {
    size_t mark = stack_.size();
    while (mark > 0 && stack_[mark - 1] != kMark) --mark;
    if (mark == 0) fail("it lacks the begin of a list; the file is damaged");
    std::vector<int> items(stack_.begin() + static_cast<int64_t>(mark), stack_.end());
    stack_.resize(mark - 1);
    return items;
  }

  void step(Opcode opcode);
  void number(Opcode opcode);
  void text(Opcode opcode);
  void container(Opcode opcode);
  void extend(Opcode opcode);
  void memo(Opcode opcode);
  void object(Opcode opcode);

  void push_long(uint64_t bytes);
  void tuple(size_t count);
  void append_to(int target, PickleValue::Kind kind, const std::vector<int>& items);
  void remember(uint64_t key);
  void recall(uint64_t key);
  void global(const std::string& module, const std::string& name);
  void reduce();
  void build();

  const std::span<const std::byte> bytes_;
  const std::string& what_;
  const PickleRules& rules_;
  std::vector<PickleValue>& values_;
  std::vector<int> stack_;
  std::map<uint64_t, int> memo_;
  size_t at_ = 0, begun_ = 0;
};

}  // namespace vox
