// SPDX-License-Identifier: Apache-2.0
// The GPUs of this host, without the driver's library.
#pragma once

#include <string>
#include <vector>

namespace fullshard::launch {

// Names of NVIDIA GPUs from the driver's files ("NVIDIA H200", or "GPU 0" where they do not say).
std::vector<std::string> find_gpus();
// How many of them a program sees, according to CUDA_VISIBLE_DEVICES where it is set.
int num_visible_gpus();

}  // namespace fullshard::launch
