#include "io/pickle.h"

#include <bit>

#include "io/pickle_machine.h"

namespace vox {

using Kind = PickleValue::Kind;

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
