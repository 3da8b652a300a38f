// SPDX-License-Identifier: Apache-2.0
#include "fullshard/base/error.h"
#include "fullshard/comm/gpu/device_transport.h"

namespace fullshard::comm {

std::string device_identity(at::Device device) {
  check(device.is_cpu(),
        "device {}: this build of Fullshard has no CUDA; build with the preset cuda", device.str());
  return "";
}

}  // namespace fullshard::comm
