// SPDX-License-Identifier: Apache-2.0
// Lets watches (tensor/allocation_watch.h) see what libtorch allocates on the CPU, which keeps no
// counts itself.
#pragma once

namespace fullshard::testing {

// For the rest of the process; a second call changes nothing. Before other threads use tensors.
void install_counting_allocator();

}  // namespace fullshard::testing
