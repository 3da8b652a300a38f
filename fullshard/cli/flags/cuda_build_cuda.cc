// SPDX-License-Identifier: Apache-2.0
#include "fullshard/cli/flags/cuda_build.h"

namespace fullshard::cli {

bool is_cuda_build() { return true; }

}  // namespace fullshard::cli
