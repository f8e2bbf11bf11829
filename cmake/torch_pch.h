// What most files above the torch line need; precompiled once.
#pragma once

#include <torch/torch.h>
