// NCCL comes with torch: it is looked up in the running program, so that a build needs neither its header nor itself.
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <dlfcn.h>

#include <atomic>

#include "base/error.h"
#include "train/team_sum.h"

namespace vox {
namespace {

struct NcclComm;
struct NcclKey {
  TeamKey bytes;
};
constexpr int kFloat32 = 7, kAdd = 0;  // of ncclDataType_t and ncclRedOp_t

struct Nccl {
  int (*new_key)(NcclKey*);
  int (*join)(NcclComm**, int count, NcclKey, int index);
  int (*all_reduce)(const void* from, void* to, size_t count, int type, int operation, NcclComm*, cudaStream_t);
  int (*begin_group)();
  int (*end_group)();
  int (*abort)(NcclComm*);
  const char* (*words)(int);
};

template <class Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

const Nccl* nccl() {
  static Nccl functions{};
  static const bool found = [] {
    void* const library = dlopen("libnccl.so.2", RTLD_NOW);
    return library && find(library, "ncclGetUniqueId", functions.new_key) &&
           find(library, "ncclCommInitRank", functions.join) && find(library, "ncclAllReduce", functions.all_reduce) &&
           find(library, "ncclGroupStart", functions.begin_group) &&
           find(library, "ncclGroupEnd", functions.end_group) && find(library, "ncclCommAbort", functions.abort) &&
           find(library, "ncclGetErrorString", functions.words);
  }();
  return found ? &functions : nullptr;
}

void require(int status, const char* what) {
  if (status != 0)
    throw Error(concat("the GPUs cannot work together: ", what, ": ", nccl()->words(status)), Fault::kMachine);
}

class NcclSum : public TeamSum {
 public:
  NcclSum(const TeamKey& key, Place place, const at::Device& device) : device_(device) {
    const c10::cuda::CUDAGuard guard(device_);
    NcclComm* joined = nullptr;
    require(nccl()->join(&joined, place.count, {key}, place.index), "joining");
    team_ = joined;
  }
  ~NcclSum() override { abort(); }

  void add_up(const std::vector<at::Tensor>& tensors) override {
    const c10::cuda::CUDAGuard guard(device_);
    NcclComm* const team = team_;
    if (!team) return;  // aborted; the leader says so before it uses what is there
    const cudaStream_t stream = c10::cuda::getCurrentCUDAStream(device_.index()).stream();
    require(nccl()->begin_group(), "summing");
    for (const at::Tensor& tensor : tensors) {
      void* const data = tensor.mutable_data_ptr();
      require(nccl()->all_reduce(data, data, static_cast<size_t>(tensor.numel()), kFloat32, kAdd, team, stream),
              "summing");
    }
    require(nccl()->end_group(), "summing");
  }

  void abort() override {
    if (NcclComm* const team = team_.exchange(nullptr)) nccl()->abort(team);
  }

 private:
  at::Device device_;
  std::atomic<NcclComm*> team_{nullptr};
};

}  // namespace

TeamKey new_team_key() {
  NcclKey key{};
  if (nccl()) require(nccl()->new_key(&key), "a key");
  return key.bytes;
}

std::unique_ptr<TeamSum> make_team_sum(const TeamKey& key, Place place, const at::Device& device) {
  return nccl() && key != TeamKey{} ? std::make_unique<NcclSum>(key, place, device) : nullptr;
}

}  // namespace vox
