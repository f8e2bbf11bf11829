// What torch and other libraries throw, as people read it: one sentence, without where in their code it happened.
#pragma once

#include <string>

namespace vox {

struct ForeignError {
  std::string sentence;
  bool out_of_memory = false;
};
ForeignError foreign_error(const std::string& what);

}  // namespace vox
