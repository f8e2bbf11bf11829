// The one exception type. Whatever a user, a file or a configuration can cause is VOX_CHECK; whatever only our own bug
// can cause is VOX_ASSERT. Only `main` and thread borders catch.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

namespace vox {

enum class Fault {
  kInput,    // the user's input is wrong: exit status 1
  kMachine,  // disk full, out of memory, a device that fails: exit status 3
  kBug,      // our own mistake: exit status 3, with a request to report it
};

class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message, Fault fault = Fault::kInput)
      : std::runtime_error(message), fault_(fault) {}
  Fault fault() const { return fault_; }

 private:
  Fault fault_;
};

template <class... Parts>
std::string concat(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

// The same error with `context` put before its message ("case s12: ..."); other exceptions become Error.
Error with_context(const std::string& context, const std::exception& cause);

// A failed system call on `path`: ENOSPC, EDQUOT, ENOMEM, EIO are the machine's fault, the rest the input's.
Error system_error(const std::string& action, const std::string& path, int error_number);
[[noreturn]] void throw_system_error(const std::string& action, const std::string& path, int error_number);

}  // namespace vox

// Macros, because the message must cost nothing while the check holds.
#define VOX_CHECK(condition, ...)                                     \
  do {                                                                \
    if (!(condition)) throw ::vox::Error(::vox::concat(__VA_ARGS__)); \
  } while (false)

#define VOX_ASSERT(condition)                                                                                          \
  do {                                                                                                                 \
    if (!(condition))                                                                                                  \
      throw ::vox::Error(::vox::concat("internal error: ", #condition, " does not hold at ", __FILE__, ":", __LINE__), \
                         ::vox::Fault::kBug);                                                                          \
  } while (false)
