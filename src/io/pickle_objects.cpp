// Names, calls and states: where a pickle would execute something, and this machine refuses.
#include "base/text.h"
#include "io/pickle_machine.h"

namespace vox {

using Kind = PickleValue::Kind;

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

}  // namespace vox
