#include "io/torch_types.h"

#include <cstring>
#include <set>

namespace vox {
namespace {

constexpr TorchType kTypes[] = {{"FloatStorage", "float32", "F32", 4},
                                {"DoubleStorage", "float64", "F64", 8},
                                {"HalfStorage", "float16", "F16", 2},
                                {"BFloat16Storage", "bfloat16", "BF16", 2},
                                {"LongStorage", "int64", "I64", 8},
                                {"IntStorage", "int32", "I32", 4},
                                {"ShortStorage", "int16", "I16", 2},
                                {"CharStorage", "int8", "I8", 1},
                                {"ByteStorage", "uint8", "U8", 1},
                                {"BoolStorage", "bool", "BOOL", 1},
                                {"ComplexFloatStorage", "complex64", "C64", 8},
                                {"ComplexDoubleStorage", "complex128", "C128", 16},
                                {nullptr, "uint16", "U16", 2},
                                {nullptr, "uint32", "U32", 4},
                                {nullptr, "uint64", "U64", 8},
                                {nullptr, "float8_e4m3fn", "F8_E4M3", 1},
                                {nullptr, "float8_e5m2", "F8_E5M2", 1}};

// What stands for a value. None of these is ever called: the reader knows what each would have made.
const std::set<std::string>& callable_names() {
  static const std::set<std::string> names{
      "collections.OrderedDict",
      "collections.Counter",
      "torch._utils._rebuild_tensor",
      "torch._utils._rebuild_tensor_v2",
      "torch._utils._rebuild_tensor_v3",
      "torch._utils._rebuild_parameter",
      "torch._utils._rebuild_parameter_with_state",
      "torch.Size",
      "torch.device",
      "builtins.set",
      "__builtin__.set",
      "builtins.frozenset",
      "__builtin__.frozenset",
      "_codecs.encode",
      "numpy.dtype",
      "numpy.core.multiarray.scalar",
      "numpy._core.multiarray.scalar",
  };
  return names;
}

}  // namespace

const TorchType* torch_type_of_storage(const std::string& global) {
  for (const TorchType& type : kTypes) {
    if (type.storage != nullptr && global == std::string("torch.") + type.storage) return &type;
  }
  return nullptr;
}

const TorchType* torch_type_of_dtype(const std::string& global) {
  for (const TorchType& type : kTypes) {
    if (global == std::string("torch.") + type.dtype) return &type;
  }
  return nullptr;
}

const TorchType* torch_type_named(const std::string& name) {
  for (const TorchType& type : kTypes) {
    if (name == type.name) return &type;
  }
  return nullptr;
}

PickleRules torch_pickle_rules() {
  const auto callable = [](const std::string& name) { return callable_names().count(name) > 0; };
  const auto known = [callable](const std::string& name) {
    return callable(name) || name == "torch.storage.UntypedStorage" || torch_type_of_storage(name) != nullptr ||
           torch_type_of_dtype(name) != nullptr;
  };
  return {known, callable};
}

}  // namespace vox
