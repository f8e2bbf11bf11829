// Starts a thread, or says in a sentence that the machine has no room for one.
#pragma once

#include <system_error>
#include <thread>
#include <utility>

#include "base/error.h"

namespace vox {

Error no_more_threads(const std::system_error& cause);

template <class Thread = std::thread, class Work>
Thread start_thread(Work work) {
  try {
    return Thread(std::move(work));
  } catch (const std::system_error& cause) {
    throw no_more_threads(cause);
  }
}

}  // namespace vox
