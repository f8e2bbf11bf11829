#pragma once

#include <string>

namespace vox::cli {

// A program built against one torch must not run with another: the loader would fail at some later symbol with a
// message nobody understands. Error names both versions where the torch found at start is another one.
void require_built_torch();

std::string loaded_torch_version();  // empty where torch came without its Python package

}  // namespace vox::cli
