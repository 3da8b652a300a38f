// SPDX-License-Identifier: Apache-2.0
// The same bits on every run. On the CPU, and in our own kernels, that is always so.
#pragma once

namespace fullshard::train {

// libtorch's kernels too, for the whole process; one that cannot says so in an error. Call it
// before CUDA is first used.
void choose_deterministic_kernels();

}  // namespace fullshard::train
