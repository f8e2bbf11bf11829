#include "io/torch_state.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/text.h"
#include "io/torch_types.h"

namespace vox {
namespace {

using Kind = PickleValue::Kind;

constexpr size_t kMostAxes = 16;

class TensorReader {
 public:
  TensorReader(const Pickle& pickle, const std::string& path, const std::string& name)
      : pickle_(pickle), what_(concat(path, ": tensor \"", printable(name), "\"")) {
    tensor_.name = name;
  }

  TorchTensor read(const PickleValue& made) {
    const PickleValue& rebuilt = inner(made);
    const bool untyped = rebuilt.text == "torch._utils._rebuild_tensor_v3";
    require(rebuilt.items.size() >= (untyped ? 7u : 4u));
    read_storage(item(rebuilt, 0), untyped ? &item(rebuilt, 6) : nullptr);
    tensor_.offset = integer(item(rebuilt, 1));
    tensor_.shape = integers(item(rebuilt, 2));
    tensor_.stride = integers(item(rebuilt, 3));
    require(tensor_.shape.size() == tensor_.stride.size());
    require_inside();
    return tensor_;
  }

 private:
  void require(bool holds) const {
    VOX_CHECK(holds, what_, " is not written as torch.save writes tensors; the file is damaged");
  }
  const PickleValue& item(const PickleValue& value, size_t i) const { return pickle_.at(value.items[i]); }
  int64_t integer(const PickleValue& value) const {
    require(value.kind == Kind::kInteger && value.integer >= 0);
    return value.integer;
  }
  std::vector<int64_t> integers(const PickleValue& value) const {
    const bool is_size = value.kind == Kind::kObject && value.text == "torch.Size" && value.items.size() == 1;
    const PickleValue& tuple = is_size ? item(value, 0) : value;
    require((tuple.kind == Kind::kTuple || tuple.kind == Kind::kList) && tuple.items.size() <= kMostAxes);
    std::vector<int64_t> result;
    for (size_t i = 0; i < tuple.items.size(); ++i) result.push_back(integer(item(tuple, i)));
    return result;
  }

  // A parameter is a tensor with wrapping.
  const PickleValue& inner(const PickleValue& made) const {
    if (made.text.rfind("torch._utils._rebuild_parameter", 0) != 0) return made;
    require(!made.items.empty());
    const PickleValue& tensor = item(made, 0);
    require(tensor.kind == Kind::kObject && tensor.text.rfind("torch._utils._rebuild_tensor", 0) == 0);
    return tensor;
  }

  // ("storage", class, key, device, items[, view of another storage])
  void read_storage(const PickleValue& storage, const PickleValue* dtype) {
    require(storage.kind == Kind::kStorage && storage.items.size() >= 5 && item(storage, 0).text == "storage");
    require(item(storage, 1).kind == Kind::kGlobal && item(storage, 2).kind == Kind::kText);
    const TorchType* type = torch_type_of_storage(item(storage, 1).text);
    if (dtype != nullptr && dtype->kind == Kind::kGlobal) type = torch_type_of_dtype(dtype->text);
    VOX_CHECK(type != nullptr, what_, " has the storage ", printable(item(storage, 1).text), ", whose type is unknown");
    tensor_.dtype = type->name;
    tensor_.item_bytes = type->bytes;
    tensor_.storage = item(storage, 2).text;
    tensor_.storage_items = integer(item(storage, 4));
    if (dtype != nullptr) tensor_.storage_items /= type->bytes;  // of an untyped storage: bytes
    VOX_CHECK(storage.items.size() < 6 || item(storage, 5).kind == Kind::kNone, what_,
              " is a view of a storage as PyTorch before 0.4 wrote it; load and save it with a newer one");
  }

  void require_inside() const {
    int64_t last = tensor_.offset, count = 1;
    bool fits = true;
    for (size_t axis = 0; axis < tensor_.shape.size(); ++axis) {
      int64_t reach = 0;
      fits = fits && !__builtin_mul_overflow(count, tensor_.shape[axis], &count) &&
             !__builtin_mul_overflow(std::max<int64_t>(0, tensor_.shape[axis] - 1), tensor_.stride[axis], &reach) &&
             !__builtin_add_overflow(last, reach, &last);
    }
    fits = fits && !__builtin_mul_overflow(count, tensor_.item_bytes, &count);
    VOX_CHECK(fits && (count == 0 || last < tensor_.storage_items), what_, " reaches beyond its storage of ",
              tensor_.storage_items, " items; the file is damaged");
  }

  const Pickle& pickle_;
  const std::string what_;
  TorchTensor tensor_;
};

bool is_tensor(const PickleValue& value) {
  return value.kind == Kind::kObject && value.text.rfind("torch._utils._rebuild_", 0) == 0;
}

struct Candidate {
  std::string path;  // "" is the root
  const PickleValue* dict = nullptr;
  size_t tensors = 0;
};

std::string last_part(const std::string& path) {
  const size_t dot = path.rfind('.');
  return dot == std::string::npos ? path : path.substr(dot + 1);
}

// Dicts that hold tensors, level by level. A value may stand in many places, even inside itself: each is seen once.
std::vector<Candidate> candidates_in(const Pickle& pickle) {
  constexpr int kDeepest = 3;
  std::vector<Candidate> found, level{{"", &pickle.root()}};
  std::set<const PickleValue*> seen{&pickle.root()};
  for (int depth = 0; depth <= kDeepest && !level.empty(); ++depth) {
    std::vector<Candidate> next;
    for (Candidate& candidate : level) {
      const std::vector<int>& items = candidate.dict->items;
      for (size_t i = 0; candidate.dict->kind == Kind::kDict && i + 1 < items.size(); i += 2) {
        const PickleValue &key = pickle.at(items[i]), &value = pickle.at(items[i + 1]);
        if (key.kind != Kind::kText) continue;
        if (is_tensor(value)) ++candidate.tensors;
        if (value.kind != Kind::kDict || !seen.insert(&value).second) continue;
        next.push_back({candidate.path.empty() ? key.text : candidate.path + "." + key.text, &value});
      }
      if (candidate.tensors > 0) found.push_back(candidate);
    }
    level = std::move(next);
  }
  return found;
}

std::string paths_text(const std::vector<Candidate>& candidates) {
  std::vector<std::string> parts;
  for (const Candidate& c : candidates) {
    const std::string name = c.path.empty() ? "the top level" : printable(c.path);
    parts.push_back(concat(name, " (", c.tensors, c.tensors == 1 ? " tensor)" : " tensors)"));
  }
  return join(parts, ", ");
}

bool of_optimizer(const Candidate& candidate) {
  return candidate.path.find("optim") != std::string::npos;
}

bool is_average(const Candidate& candidate) {
  return ("." + candidate.path).find(".ema") != std::string::npos;
}

// Tensors at the top level beside a dict of more are no weights: a loss, a step.
std::vector<Candidate> without_loose_ones(std::vector<Candidate> candidates) {
  const size_t loose = candidates.front().path.empty() ? candidates.front().tensors : 0;
  const bool beside = loose > 0 && std::any_of(candidates.begin(), candidates.end(), [&](const Candidate& c) {
                        return c.tensors > loose && !of_optimizer(c) && !is_average(c);
                      });
  if (beside) candidates.erase(candidates.begin());
  return candidates;
}

// An average may have a tensor more than what it is of: a counter.
bool better(const Candidate& a, const Candidate& b) {
  return is_average(a) != is_average(b) ? is_average(b) : a.tensors > b.tensors;
}

// Of the dicts that are called what trainers call the weights the one with the most tensors; of equal ones the first in
// the order of the names.
const Candidate& choose(const std::vector<Candidate>& candidates, const std::string& path) {
  static const std::vector<std::string> names{
      "",        "state_dict", "network_weights", "model_state_dict", "model", "network_state_dict", "net",
      "network", "weights",    "module",          "generator",        "ema",   "ema_state_dict"};
  const Candidate* best = nullptr;
  for (const std::string& name : names) {
    for (const Candidate& candidate : candidates) {
      const bool named = last_part(candidate.path) == name && !of_optimizer(candidate);
      if (named && (best == nullptr || better(candidate, *best))) best = &candidate;
    }
  }
  if (best != nullptr) return *best;
  VOX_CHECK(candidates.size() == 1, path, " holds several dicts of tensors: ", paths_text(candidates),
            "; say which one with --entry NAME");
  return candidates.front();
}

const Candidate& find_entry(const std::vector<Candidate>& candidates, const std::string& entry,
                            const std::string& path) {
  for (const Candidate& candidate : candidates) {
    if (candidate.path == entry || last_part(candidate.path) == entry) return candidate;
  }
  throw Error(concat(path, " has no dict of tensors called \"", entry, "\"; there is ", paths_text(candidates)));
}

}  // namespace

int64_t TorchTensor::count() const {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  return count;
}

bool TorchTensor::contiguous() const {
  int64_t expected = 1;
  for (size_t axis = shape.size(); axis > 0; --axis) {
    if (shape[axis - 1] != 1 && stride[axis - 1] != expected) return false;
    expected *= shape[axis - 1];
  }
  return true;
}

std::vector<TorchTensor> find_state_dict(const Pickle& pickle, const std::string& entry, const std::string& path) {
  std::vector<Candidate> candidates = candidates_in(pickle);
  VOX_CHECK(!candidates.empty(), path, " holds no dict of tensors; torch.save(model.state_dict(), ...) writes one");
  if (entry.empty()) candidates = without_loose_ones(std::move(candidates));
  const Candidate& chosen = entry.empty() ? choose(candidates, path) : find_entry(candidates, entry, path);
  std::vector<TorchTensor> tensors;
  std::set<std::string> names;
  for (size_t i = chosen.dict->items.size(); i >= 2; i -= 2) {  // backwards: of equal keys the last counts
    const PickleValue &key = pickle.at(chosen.dict->items[i - 2]), &value = pickle.at(chosen.dict->items[i - 1]);
    if (key.kind != Kind::kText || !is_tensor(value) || !names.insert(key.text).second) continue;
    tensors.push_back(TensorReader(pickle, path, key.text).read(value));
  }
  std::reverse(tensors.begin(), tensors.end());
  return tensors;
}

}  // namespace vox
