// SPDX-License-Identifier: Apache-2.0
// What programs ask of this host and of their build, answered for the stand-in device.
#include <string>
#include <vector>

#include "fullshard/cli/flags/cuda_build.h"
#include "fullshard/launch/devices.h"

namespace fullshard::cli {

bool is_cuda_build() { return true; }

}  // namespace fullshard::cli

namespace fullshard::launch {

std::vector<std::string> find_gpus() { return {"stand-in GPU"}; }
int num_visible_gpus() { return 1; }

}  // namespace fullshard::launch
