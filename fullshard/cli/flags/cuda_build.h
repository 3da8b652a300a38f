// SPDX-License-Identifier: Apache-2.0
// Whether this build runs on GPUs; known without asking libtorch, which takes its time to load.
#pragma once

namespace fullshard::cli {

bool is_cuda_build();

}  // namespace fullshard::cli
