#include "base/error.h"

#include <cerrno>
#include <cstring>
#include <new>

namespace vox {

Error with_context(const std::string& context, const std::exception& cause) {
  Fault fault = Fault::kInput;
  if (const auto* error = dynamic_cast<const Error*>(&cause)) fault = error->fault();
  if (dynamic_cast<const std::bad_alloc*>(&cause)) return Error(context + ": out of memory", Fault::kMachine);
  return Error(context + ": " + cause.what(), fault);
}

void throw_system_error(const std::string& action, const std::string& path, int error_number) {
  const bool machine = error_number == ENOSPC || error_number == EDQUOT || error_number == ENOMEM ||
                       error_number == EIO || error_number == EFBIG || error_number == EMFILE || error_number == ENFILE;
  const bool full = error_number == ENOSPC || error_number == EDQUOT;
  throw Error(concat("cannot ", action, " ", path, ": ", std::strerror(error_number),
                     full ? "; make room there and run the same command again" : ""),
              machine ? Fault::kMachine : Fault::kInput);
}

}  // namespace vox
