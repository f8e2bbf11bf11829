#include "base/error.h"

#include <cerrno>
#include <cstring>
#include <new>

namespace vox {

Error with_context(const std::string& context, const std::exception& cause) {
  if (const auto* error = dynamic_cast<const Error*>(&cause))
    return Error(context + ": " + error->what(), error->fault());
  if (dynamic_cast<const std::bad_alloc*>(&cause)) return Error(context + ": out of memory", Fault::kMachine);
  const std::string what = cause.what();
  return Error(context + ": " + what.substr(0, what.find('\n')));  // then torch tells where in its code
}

Error system_error(const std::string& action, const std::string& path, int error_number) {
  const bool machine = error_number == ENOSPC || error_number == EDQUOT || error_number == ENOMEM ||
                       error_number == EIO || error_number == EFBIG || error_number == EMFILE || error_number == ENFILE;
  const bool full = error_number == ENOSPC || error_number == EDQUOT;
  return Error(concat("cannot ", action, " ", path, ": ", std::strerror(error_number),
                      full ? "; make room there and run the same command again" : ""),
               machine ? Fault::kMachine : Fault::kInput);
}

void throw_system_error(const std::string& action, const std::string& path, int error_number) {
  throw system_error(action, path, error_number);
}

}  // namespace vox
