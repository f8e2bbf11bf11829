// Files of torch.save: since 1.6 a zip file with a pickle and one member per storage; before, pickles one after another
// and the storages behind them.
#include <cstring>
#include <map>

#include "base/error.h"
#include "base/text.h"
#include "io/array_file.h"
#include "io/pickle.h"
#include "io/torch_state.h"
#include "io/torch_types.h"
#include "io/zip_archive.h"

namespace vox {
namespace {

constexpr int64_t kLargestPickle = int64_t{64} << 20;

enum class TorchFileForm { kNone, kZip, kLegacy };

TorchFileForm torch_file_form(const fs::path& path) {
  constexpr char kMagic[] = "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.";  // protocol 2, an integer
  std::byte head[sizeof kMagic - 1]{};
  const int64_t read = InputFile(path).read_some(0, head);
  if (read >= 4 && is_zip(head)) return TorchFileForm::kZip;
  const bool same = read == static_cast<int64_t>(sizeof head) && std::memcmp(head, kMagic, sizeof head) == 0;
  return same ? TorchFileForm::kLegacy : TorchFileForm::kNone;
}

// Where the storages of a file lie.
class StorageReader {
 public:
  virtual ~StorageReader() = default;
  virtual int64_t bytes(const std::string& key) const = 0;  // -1: there is none
  virtual void read(const std::string& key, std::span<std::byte> out) const = 0;
};

class ZipStorages : public StorageReader {
 public:
  ZipStorages(const InputFile& file, const std::vector<ZipMember>& members, const std::string& folder) : file_(file) {
    const std::string prefix = folder + "data/";
    for (const ZipMember& member : members) {
      if (member.name.rfind(prefix, 0) == 0) members_[member.name.substr(prefix.size())] = member;
    }
  }
  int64_t bytes(const std::string& key) const override {
    const auto found = members_.find(key);
    return found == members_.end() ? -1 : static_cast<int64_t>(found->second.unpacked_bytes);
  }
  void read(const std::string& key, std::span<std::byte> out) const override {
    read_zip_member(file_, members_.at(key), out);
  }

 private:
  const InputFile& file_;
  std::map<std::string, ZipMember> members_;
};

class PlainStorages : public StorageReader {
 public:
  struct Place {
    int64_t begin = 0, bytes = 0;
  };
  PlainStorages(const InputFile& file, std::map<std::string, Place> places) : file_(file), places_(std::move(places)) {}
  int64_t bytes(const std::string& key) const override {
    const auto found = places_.find(key);
    return found == places_.end() ? -1 : found->second.bytes;
  }
  void read(const std::string& key, std::span<std::byte> out) const override { file_.read(places_.at(key).begin, out); }

 private:
  const InputFile& file_;
  std::map<std::string, Place> places_;
};

// Copies a view out of its storage; rows of the last axis at once where they lie together.
void gather(const TorchTensor& tensor, std::span<const std::byte> storage, std::span<std::byte> out) {
  const size_t axes = tensor.shape.size(), item = static_cast<size_t>(tensor.item_bytes);
  std::vector<int64_t> index(axes, 0);
  int64_t at = tensor.offset;
  for (size_t done = 0; done < out.size(); done += item) {
    std::memcpy(out.data() + done, storage.data() + static_cast<size_t>(at) * item, item);
    for (size_t axis = axes; axis > 0; --axis) {
      at += tensor.stride[axis - 1];
      if (++index[axis - 1] < tensor.shape[axis - 1]) break;
      at -= tensor.stride[axis - 1] * tensor.shape[axis - 1];
      index[axis - 1] = 0;
    }
  }
}

class TorchFile : public ArrayFile {
 public:
  explicit TorchFile(const fs::path& path) : file_(path) {}

  void open_zip(const std::string& entry);
  void open_legacy(const std::string& entry);

  const std::string& path() const override { return file_.path(); }
  const std::vector<ArrayEntry>& arrays() const override { return entries_; }
  void read(size_t index, std::span<std::byte> out) const override;

 private:
  void take(std::vector<TorchTensor> tensors);
  std::span<const std::byte> whole_storage(const TorchTensor& tensor) const;

  InputFile file_;
  std::unique_ptr<StorageReader> storages_;
  std::vector<TorchTensor> tensors_;
  std::vector<ArrayEntry> entries_;
  mutable std::string kept_key_;  // the storage that views were cut from last
  mutable std::vector<std::byte> kept_;
};

void TorchFile::take(std::vector<TorchTensor> tensors) {
  // Views may overlap, so that a small file could ask for any amount of memory.
  const int64_t most = 64 * file_.size() + (int64_t{1} << 26);
  int64_t total = 0;
  for (const TorchTensor& tensor : tensors) {
    const int64_t stored = storages_->bytes(tensor.storage), bytes = tensor.count() * tensor.item_bytes;
    const std::string what = concat(path(), ": tensor \"", printable(tensor.name), "\"");
    VOX_CHECK(stored >= 0, what, " is without its storage \"", printable(tensor.storage), "\"; the file is damaged");
    VOX_CHECK(stored <= most && stored / tensor.item_bytes >= tensor.storage_items, what, " needs a storage of ",
              tensor.storage_items, " items, but there are ", stored, " bytes; the file is damaged");
    total = bytes > most ? most + 1 : total + bytes;
    VOX_CHECK(total <= most, path(), ": its tensors would take ", total, " bytes or more, but it has only ",
              file_.size(), "; it is damaged or made to fill the memory");
    entries_.push_back({tensor.name, tensor.dtype, tensor.shape, bytes});
  }
  tensors_ = std::move(tensors);
}

std::span<const std::byte> TorchFile::whole_storage(const TorchTensor& tensor) const {
  if (kept_.empty() || kept_key_ != tensor.storage) {
    kept_.clear();
    kept_.resize(static_cast<size_t>(storages_->bytes(tensor.storage)));
    kept_key_ = tensor.storage;
    storages_->read(tensor.storage, kept_);
  }
  return kept_;
}

void TorchFile::read(size_t index, std::span<std::byte> out) const {
  const TorchTensor& tensor = tensors_[index];
  VOX_ASSERT(static_cast<int64_t>(out.size()) == entries_[index].bytes);
  if (out.empty()) return;
  const bool is_whole = tensor.contiguous() && storages_->bytes(tensor.storage) == entries_[index].bytes;
  if (is_whole) return storages_->read(tensor.storage, out);
  gather(tensor, whole_storage(tensor), out);
}

const ZipMember& pickle_member(const std::vector<ZipMember>& members, const std::string& path) {
  const ZipMember* found = nullptr;
  for (const ZipMember& member : members) {
    VOX_CHECK(member.name.find("/code/") == std::string::npos && !ends_with(member.name, "/constants.pkl"), path,
              " is a TorchScript module, not a file of weights; train or run it with model.architecture=torchscript "
              "model.file=",
              path);
    if (ends_with(member.name, "/data.pkl") && found == nullptr) found = &member;
  }
  VOX_CHECK(found != nullptr, path, " is a zip file, but none of torch.save: it holds no data.pkl");
  return *found;
}

void TorchFile::open_zip(const std::string& entry) {
  const std::vector<ZipMember> members = read_zip_directory(file_);
  const ZipMember& member = pickle_member(members, path());
  const std::string folder = member.name.substr(0, member.name.size() - std::strlen("data.pkl"));
  for (const ZipMember& other : members) {
    if (other.name != folder + "byteorder") continue;
    const std::vector<std::byte> order = read_zip_member(file_, other, 16);
    VOX_CHECK(order.size() == 6 && std::memcmp(order.data(), "little", 6) == 0, path(),
              " was written on a big-endian machine; save it again on another");
  }
  storages_ = std::make_unique<ZipStorages>(file_, members, folder);
  const std::vector<std::byte> bytes = read_zip_member(file_, member, kLargestPickle);
  const Pickle pickle(bytes, path(), torch_pickle_rules());
  take(find_state_dict(pickle, entry, path()));
}

// Bytes of an item of each storage that a pickle names, also of those that hold no weights.
std::map<std::string, int64_t> storage_item_bytes(const Pickle& pickle) {
  std::map<std::string, int64_t> result;
  for (size_t i = 0; i < pickle.size(); ++i) {
    const PickleValue& value = pickle.at(static_cast<int>(i));
    if (value.kind != PickleValue::Kind::kStorage || value.items.size() < 5) continue;
    const TorchType* type = torch_type_of_storage(pickle.at(value.items[1]).text);
    if (type != nullptr) result[pickle.at(value.items[2]).text] = type->bytes;
  }
  return result;
}

// For each key in turn: the number of items, and the items.
std::map<std::string, PlainStorages::Place> find_storages(const InputFile& file, int64_t begin, const Pickle& keys,
                                                          const std::map<std::string, int64_t>& item_bytes) {
  std::map<std::string, PlainStorages::Place> places;
  for (const int index : keys.root().items) {
    const std::string& key = keys.at(index).text;
    int64_t items = 0, bytes = 0;
    file.read(begin, std::as_writable_bytes(std::span(&items, 1)));
    begin += static_cast<int64_t>(sizeof items);
    const auto known = item_bytes.find(key);
    const bool fits = items >= 0 && known != item_bytes.end() &&
                      !__builtin_mul_overflow(items, known->second, &bytes) && bytes <= file.size() - begin;
    VOX_CHECK(fits, file.path(), ": the storage \"", printable(key), "\" should have ", items,
              " items, which are not there; the file is cut or damaged");
    places[key] = {begin, bytes};
    begin += bytes;
  }
  return places;
}

// Magic number, protocol, facts of the machine, the object, the keys of the storages: a pickle each.
void TorchFile::open_legacy(const std::string& entry) {
  std::vector<std::byte> bytes(static_cast<size_t>(std::min(file_.size(), kLargestPickle)));
  file_.read(0, bytes);
  size_t at = 0;
  const auto next = [&] {
    Pickle pickle(std::span<const std::byte>(bytes).subspan(at), path(), torch_pickle_rules());
    at += pickle.bytes_read();
    return pickle;
  };
  for (int i = 0; i < 3; ++i) next();
  const Pickle pickle = next();
  const Pickle keys = next();
  storages_ = std::make_unique<PlainStorages>(
      file_, find_storages(file_, static_cast<int64_t>(at), keys, storage_item_bytes(pickle)));
  take(find_state_dict(pickle, entry, path()));
}

}  // namespace

std::unique_ptr<ArrayFile> open_torch_file(const fs::path& path, const std::string& entry) {
  auto file = std::make_unique<TorchFile>(path);
  switch (torch_file_form(path)) {
    case TorchFileForm::kZip:
      file->open_zip(entry);
      break;
    case TorchFileForm::kLegacy:
      file->open_legacy(entry);
      break;
    case TorchFileForm::kNone:
      throw Error(path.string() + " is no file of torch.save");
  }
  return file;
}

}  // namespace vox
