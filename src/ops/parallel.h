// Loops of our own on a CPU. at::parallel_for is no help there: it is a header that needs -fopenmp, and a second OpenMP
// runtime beside torch's own would come with that.
#pragma once

#include <cstdint>
#include <functional>

namespace vox::ops {

// Calls piece(i) for 0 <= i < count, in any order, on as many threads as torch computes with. From any thread.
void for_each_piece(int64_t count, const std::function<void(int64_t)>& piece);

}  // namespace vox::ops
