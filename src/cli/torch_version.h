#pragma once

namespace vox::cli {

// A program built against one torch must not run with another: the loader would fail at some later symbol with a
// message nobody understands. Error names both versions where the torch found at start is another one.
void require_built_torch();

}  // namespace vox::cli
