// The instructions of pickle that torch.save writes (Python's pickletools describes them all), by what they do.
#pragma once

#include <cstdint>

namespace vox {

enum class Opcode : uint8_t {
  kMark = '(',
  kStop = '.',
  kPop = '0',
  kPopToMark = '1',
  kDuplicate = '2',
  kNumber = 'G',
  kInteger4 = 'J',
  kInteger1 = 'K',
  kInteger2 = 'M',
  kLong1 = 0x8a,
  kLong4 = 0x8b,
  kNone = 'N',
  kTrue = 0x88,
  kFalse = 0x89,
  kText4 = 'X',
  kText1 = 0x8c,
  kText8 = 0x8d,
  kString4 = 'T',  // of Python 2
  kString1 = 'U',
  kBytes4 = 'B',
  kBytes1 = 'C',
  kBytes8 = 0x8e,
  kByteArray = 0x96,
  kEmptyDict = '}',
  kEmptyList = ']',
  kEmptyTuple = ')',
  kEmptySet = 0x8f,
  kTuple = 't',
  kTuple1 = 0x85,
  kTuple2 = 0x86,
  kTuple3 = 0x87,
  kList = 'l',
  kDict = 'd',
  kFrozenSet = 0x91,
  kAppend = 'a',
  kAppends = 'e',
  kSetItem = 's',
  kSetItems = 'u',
  kAddItems = 0x90,
  kPut1 = 'q',
  kPut4 = 'r',
  kMemoize = 0x94,
  kGet1 = 'h',
  kGet4 = 'j',
  kProtocol = 0x80,
  kFrame = 0x95,
  kGlobal = 'c',
  kStackGlobal = 0x93,
  kReduce = 'R',
  kBuild = 'b',
  kPersistent = 'Q',
  kNewObject = 0x81,
  kInstance = 'i',
  kObject = 'o',
  kNewObjectNamed = 0x92,
};

enum class OpcodeGroup { kUnknown, kNumber, kText, kContainer, kExtend, kMemo, kObject };

constexpr OpcodeGroup group_of(Opcode opcode) {
  switch (opcode) {
    case Opcode::kNumber:
    case Opcode::kInteger4:
    case Opcode::kInteger1:
    case Opcode::kInteger2:
    case Opcode::kLong1:
    case Opcode::kLong4:
    case Opcode::kNone:
    case Opcode::kTrue:
    case Opcode::kFalse:
      return OpcodeGroup::kNumber;
    case Opcode::kText4:
    case Opcode::kText1:
    case Opcode::kText8:
    case Opcode::kString4:
    case Opcode::kString1:
    case Opcode::kBytes4:
    case Opcode::kBytes1:
    case Opcode::kBytes8:
    case Opcode::kByteArray:
      return OpcodeGroup::kText;
    case Opcode::kMark:
    case Opcode::kPop:
    case Opcode::kPopToMark:
    case Opcode::kDuplicate:
    case Opcode::kEmptyDict:
    case Opcode::kEmptyList:
    case Opcode::kEmptyTuple:
    case Opcode::kEmptySet:
    case Opcode::kTuple:
    case Opcode::kTuple1:
    case Opcode::kTuple2:
    case Opcode::kTuple3:
    case Opcode::kList:
    case Opcode::kDict:
    case Opcode::kFrozenSet:
      return OpcodeGroup::kContainer;
    case Opcode::kAppend:
    case Opcode::kAppends:
    case Opcode::kSetItem:
    case Opcode::kSetItems:
    case Opcode::kAddItems:
      return OpcodeGroup::kExtend;
    case Opcode::kPut1:
    case Opcode::kPut4:
    case Opcode::kMemoize:
    case Opcode::kGet1:
    case Opcode::kGet4:
      return OpcodeGroup::kMemo;
    case Opcode::kProtocol:
    case Opcode::kFrame:
    case Opcode::kGlobal:
    case Opcode::kStackGlobal:
    case Opcode::kReduce:
    case Opcode::kBuild:
    case Opcode::kPersistent:
    case Opcode::kNewObject:
    case Opcode::kInstance:
    case Opcode::kObject:
    case Opcode::kNewObjectNamed:
      return OpcodeGroup::kObject;
    default:
      return OpcodeGroup::kUnknown;
  }
}

}  // namespace vox
