#include "io/pickle.h"

#include <bit>
#include <charconv>
#include <cstring>
#include <map>

#include "base/error.h"
#include "base/text.h"
#include "io/pickle_opcodes.h"

namespace vox {

using Kind = PickleValue::Kind;

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
  void push(Kind kind, std::vector<int> items = {}) { push({.kind = kind, .text = {}, .items = std::move(items)}); }
  void push_integer(int64_t integer) { push({.kind = Kind::kInteger, .integer = integer, .text = {}}); }
  void push_bool(bool value) { push({.kind = Kind::kBool, .integer = value ? 1 : 0, .text = {}}); }
  void push_text(Kind kind, std::string text) { push({.kind = kind, .text = std::move(text)}); }

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
  void append_to(int target, Kind kind, const std::vector<int>& items);
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

void PickleMachine::step(Opcode opcode) {
  switch (group_of(opcode)) {
    case OpcodeGroup::kNumber:
      return number(opcode);
    case OpcodeGroup::kText:
      return text(opcode);
    case OpcodeGroup::kContainer:
      return container(opcode);
    case OpcodeGroup::kExtend:
      return extend(opcode);
    case OpcodeGroup::kMemo:
      return memo(opcode);
    case OpcodeGroup::kObject:
      return object(opcode);
    case OpcodeGroup::kUnknown:
      break;
  }
  fail("the instruction ", static_cast<int>(opcode), " is none that torch.save writes; the file is damaged or refused");
}

void PickleMachine::push_long(uint64_t bytes) {
  const std::string digits = take_text(bytes);
  if (digits.size() > sizeof(int64_t)) {
    push({.kind = Kind::kInteger, .integer = INT64_MAX, .text = digits});
    return;
  }
  uint64_t integer = 0;
  for (size_t i = 0; i < digits.size(); ++i) integer |= uint64_t{static_cast<uint8_t>(digits[i])} << (8 * i);
  const size_t missing = 64 - 8 * digits.size();
  if (digits.empty()) return push_integer(0);
  push_integer(static_cast<int64_t>(integer << missing) >> missing);
}

void PickleMachine::number(Opcode opcode) {
  switch (opcode) {
    case Opcode::kNone:
      return push(Kind::kNone);
    case Opcode::kTrue:
      return push_bool(true);
    case Opcode::kFalse:
      return push_bool(false);
    case Opcode::kInteger4:
      return push_integer(take<int32_t>());
    case Opcode::kInteger1:
      return push_integer(take<uint8_t>());
    case Opcode::kInteger2:
      return push_integer(take<uint16_t>());
    case Opcode::kLong1:
      return push_long(take<uint8_t>());
    case Opcode::kLong4:
      return push_long(take<uint32_t>());
    default: {
      const uint64_t swapped = __builtin_bswap64(take<uint64_t>());  // the one value that is big endian
      push({.kind = Kind::kNumber, .number = std::bit_cast<double>(swapped), .text = {}});
    }
  }
}

void PickleMachine::text(Opcode opcode) {
  switch (opcode) {
    case Opcode::kText1:
      return push_text(Kind::kText, take_text(take<uint8_t>()));
    case Opcode::kText4:
      return push_text(Kind::kText, take_text(take<uint32_t>()));
    case Opcode::kText8:
      return push_text(Kind::kText, take_text(take<uint64_t>()));
    case Opcode::kString1:
      return push_text(Kind::kText, take_text(take<uint8_t>()));
    case Opcode::kString4:
      return push_text(Kind::kText, take_text(take<uint32_t>()));
    case Opcode::kBytes1:
      return push_text(Kind::kBytes, take_text(take<uint8_t>()));
    case Opcode::kBytes4:
      return push_text(Kind::kBytes, take_text(take<uint32_t>()));
    default:
      return push_text(Kind::kBytes, take_text(take<uint64_t>()));
  }
}

void PickleMachine::tuple(size_t count) {
  std::vector<int> items(count);
  for (size_t i = count; i > 0; --i) items[i - 1] = pop();
  push(Kind::kTuple, std::move(items));
}

void PickleMachine::container(Opcode opcode) {
  switch (opcode) {
    case Opcode::kMark:
      return stack_.push_back(kMark);
    case Opcode::kPop: {
      if (!stack_.empty() && stack_.back() == kMark) return stack_.pop_back();
      pop();
      return;
    }
    case Opcode::kPopToMark:
      pop_to_mark();
      return;
    case Opcode::kDuplicate:
      return stack_.push_back(top());
    case Opcode::kEmptyTuple:
      return push(Kind::kTuple);
    case Opcode::kEmptyList:
      return push(Kind::kList);
    case Opcode::kEmptyDict:
      return push(Kind::kDict);
    case Opcode::kEmptySet:
      return push(Kind::kSet);
    case Opcode::kTuple1:
      return tuple(1);
    case Opcode::kTuple2:
      return tuple(2);
    case Opcode::kTuple3:
      return tuple(3);
    case Opcode::kTuple:
      return push(Kind::kTuple, pop_to_mark());
    case Opcode::kList:
      return push(Kind::kList, pop_to_mark());
    case Opcode::kFrozenSet:
      return push(Kind::kSet, pop_to_mark());
    default: {
      std::vector<int> items = pop_to_mark();
      if (items.size() % 2 != 0) fail("a dict has a key without a value; the file is damaged");
      push(Kind::kDict, std::move(items));
    }
  }
}

void PickleMachine::append_to(int target, Kind kind, const std::vector<int>& items) {
  PickleValue& container = value(target);
  if (container.kind != kind) fail("it puts items into something that is no container; the file is damaged");
  container.items.insert(container.items.end(), items.begin(), items.end());
}

void PickleMachine::extend(Opcode opcode) {
  switch (opcode) {
    case Opcode::kAppend: {
      const int item = pop();
      return append_to(top(), Kind::kList, {item});
    }
    case Opcode::kSetItem: {
      const int item = pop(), key = pop();
      return append_to(top(), Kind::kDict, {key, item});
    }
    case Opcode::kSetItems: {
      const std::vector<int> items = pop_to_mark();
      if (items.size() % 2 != 0) fail("a dict has a key without a value; the file is damaged");
      return append_to(top(), Kind::kDict, items);
    }
    default: {
      const std::vector<int> items = pop_to_mark();
      return append_to(top(), opcode == Opcode::kAppends ? Kind::kList : Kind::kSet, items);
    }
  }
}

void PickleMachine::remember(uint64_t key) {
  memo_[key] = top();
}

void PickleMachine::recall(uint64_t key) {
  const auto found = memo_.find(key);
  if (found == memo_.end()) fail("it refers to value ", key, ", which it has not remembered; the file is damaged");
  stack_.push_back(found->second);
}

void PickleMachine::memo(Opcode opcode) {
  switch (opcode) {
    case Opcode::kPut1:
      return remember(take<uint8_t>());
    case Opcode::kPut4:
      return remember(take<uint32_t>());
    case Opcode::kMemoize:
      return remember(memo_.size());
    case Opcode::kGet1:
      return recall(take<uint8_t>());
    default:
      return recall(take<uint32_t>());
  }
}

void PickleMachine::global(const std::string& module, const std::string& name) {
  const std::string full = module + "." + name;
  if (!rules_.known(full)) {
    fail("it names the Python object ", printable(full),
         ", which is refused: only tensors and plain containers are read, and nothing is executed. If you trust the "
         "file, save its state dict alone: torch.save(model.state_dict(), ...)");
  }
  push_text(Kind::kGlobal, full);
}

// Calls are kept as objects, not made: what a known name stands for is for the reader of the result to say.
void PickleMachine::reduce() {
  const int arguments = pop();
  const PickleValue& function = value(pop());
  if (function.kind != Kind::kGlobal || !rules_.callable(function.text)) {
    fail("it calls ", function.kind == Kind::kGlobal ? printable(function.text) : "something that is no function",
         ", which is refused: nothing in a file is executed");
  }
  // No function that is known takes more, and a longer list, called many times over, would fill the memory.
  if (value(arguments).kind != Kind::kTuple || value(arguments).items.size() > kMostArguments) {
    fail("it calls ", function.text, " without a list of at most ", kMostArguments, " arguments; the file is damaged");
  }
  PickleValue made{.kind = Kind::kObject, .text = function.text, .items = value(arguments).items};
  const bool is_dict = made.text == "collections.OrderedDict" && made.items.empty();
  if (is_dict) made.kind = Kind::kDict;
  push(std::move(made));
}

// torch.save sets the state of an OrderedDict (its _metadata), NumPy that of a dtype. Neither changes a weight.
void PickleMachine::build() {
  const int state = pop();
  PickleValue& target = value(top());
  if (target.kind == Kind::kDict) return;
  if (target.kind == Kind::kObject && target.text == "numpy.dtype" && target.items.size() < 8) {
    return target.items.push_back(state);
  }
  fail("it sets the state of ", target.kind == Kind::kObject ? printable(target.text) : "a plain value",
       ", which is refused");
}

void PickleMachine::object(Opcode opcode) {
  switch (opcode) {
    case Opcode::kProtocol: {
      const int protocol = take<uint8_t>();
      if (protocol > 5) fail("its protocol is ", protocol, "; known are those up to 5");
      return;
    }
    case Opcode::kFrame:
      take<uint64_t>();
      return;
    case Opcode::kGlobal: {
      const std::string module = take_line();
      return global(module, take_line());
    }
    case Opcode::kStackGlobal: {
      const int name = pop(), module = pop();
      if (value(name).kind != Kind::kText || value(module).kind != Kind::kText) {
        fail("it names a Python object by something that is no text, which is refused");
      }
      return global(std::string(value(module).text), std::string(value(name).text));
    }
    case Opcode::kReduce:
    case Opcode::kNewObject:
      return reduce();
    case Opcode::kBuild:
      return build();
    case Opcode::kPersistent: {
      const PickleValue& id = value(pop());
      if (id.kind != Kind::kTuple || id.items.size() > kMostArguments)
        fail("a storage is named by something else than torch.save does");
      return push(Kind::kStorage, std::vector<int>(id.items));
    }
    case Opcode::kInstance: {
      const std::string module = take_line(), name = take_line();
      fail("it makes an instance of ", printable(module + "." + name), ", which is refused: nothing is executed");
    }
    default:
      fail("it makes an instance of a class (instruction ", static_cast<int>(opcode), "), which is refused");
  }
}

Pickle::Pickle(std::span<const std::byte> bytes, const std::string& what, const PickleRules& rules) {
  PickleMachine machine(bytes, what, rules, *this);
  root_ = machine.run();
  bytes_read_ = machine.bytes_read();
}

const PickleValue* Pickle::find(const PickleValue& dict, const std::string& key) const {
  if (dict.kind != Kind::kDict) return nullptr;
  for (size_t i = dict.items.size(); i >= 2; i -= 2) {
    const PickleValue& candidate = at(dict.items[i - 2]);
    if (candidate.kind == Kind::kText && candidate.text == key) return &at(dict.items[i - 1]);
  }
  return nullptr;
}

}  // namespace vox
