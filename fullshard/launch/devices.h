// SPDX-License-Identifier: Apache-2.0
// The GPUs of this host, without the driver's library.
#pragma once

#include <string>
#include <vector>

namespace fullshard::launch {

// Names of NVIDIA's GPUs by the driver's files ("NVIDIA H200", or "GPU 0" where it does not say).
std::vector<std::string> find_gpus();
// How many of them a program sees: as CUDA_VISIBLE_DEVICES says, where it is set.
int num_visible_gpus();

}  // namespace fullshard::launch
