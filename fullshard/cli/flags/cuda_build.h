// SPDX-License-Identifier: Apache-2.0
// Whether this build runs on GPUs; known without libtorch, which is slow to load.
#pragma once

namespace fullshard::cli {

bool is_cuda_build();

}  // namespace fullshard::cli
