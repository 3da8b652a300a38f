// SPDX-License-Identifier: Apache-2.0
// What the driver calls an accelerator: "NVIDIA H200".
#pragma once

#include <c10/core/Device.h>

#include <string>

namespace fullshard::memory {

std::string device_name(c10::Device device);

}  // namespace fullshard::memory
