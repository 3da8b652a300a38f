#include "fullshard/cli/cuda_build.h"

namespace fullshard {

bool is_cuda_build() { return true; }

}  // namespace fullshard
