// SPDX-License-Identifier: Apache-2.0
// What a rank on a CPU does with memory that its tensors give back.
#pragma once

namespace fullshard::train {

// From now on this process keeps freed blocks of up to 32 MiB for the next step, which needs them
// again: the kernel neither takes them back nor fills them with zeros again. What glibc is told by
// the environment (MALLOC_…_, GLIBC_TUNABLES) is left as it is. Once, before the first tensor of
// size; docs/train_command.md, "On CPUs".
void keep_freed_memory();

}  // namespace fullshard::train
