#include "fullshard/base/error.h"
#include "fullshard/comm/device_transport.h"

namespace fullshard {

std::string device_identity(at::Device device) {
  check(device.is_cpu(),
        "device {}: this build of Fullshard has no CUDA; build with the preset cuda", device.str());
  return "";
}

}  // namespace fullshard
