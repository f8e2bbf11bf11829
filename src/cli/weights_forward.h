#pragma once

namespace CLI {
class App;
}

namespace vox::cli {

void define_weights_forward(CLI::App& forward);

}  // namespace vox::cli
