// voxloom list networks|losses|...: what this build knows, from the registries themselves.
#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>

#include "base/error.h"
#include "cli/command.h"
#include "io/format.h"

namespace vox::cli {
namespace {

void run_list(const std::string& what) {
  VOX_CHECK(false, "nothing known of ", what);
}

void define(CLI::App& command) {
  auto what = std::make_shared<std::string>();
  command.add_option("what", *what, "networks, losses, ...")->required();
  command.callback([what] { run_list(*what); });
}

}  // namespace

CommandEntry list_command() {
  return {"list", "What this build knows: networks, losses, formats, options, ...", define};
}

}  // namespace vox::cli
