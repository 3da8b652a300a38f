// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime.h>
#include <fmt/format.h>

#include <array>

#include "fullshard/base/error.h"
#include "fullshard/comm/gpu/device_transport.h"

namespace fullshard::comm {

// The UUID is the GPU's own; where one is cut in several (MIG), the parts differ in it too. The
// place on the bus is for people.
std::string device_identity(at::Device device) {
  if (device.is_cpu()) return "";
  cudaDeviceProp properties{};
  std::array<char, 32> bus{};
  cudaError_t result = cudaGetDeviceProperties(&properties, device.index());
  if (result == cudaSuccess) {
    result = cudaDeviceGetPCIBusId(bus.data(), static_cast<int>(bus.size()), device.index());
  }
  check(result == cudaSuccess, "device {}: the GPU does not say which one it is: {}", device.str(),
        cudaGetErrorString(result));
  std::string identity = fmt::format("{} (", bus.data());
  for (const char byte : properties.uuid.bytes) {
    identity += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  }
  return identity + ")";
}

}  // namespace fullshard::comm
