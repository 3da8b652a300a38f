// SPDX-License-Identifier: Apache-2.0
// A GPU's stream as launchers of kernels (*.cu) take it. Only a KernelLaunch (kernel_launch.h)
// gives one out, so that nothing is launched past its checks. No torch, no CUDA.
#pragma once

struct CUstream_st;  // cudaStream_t points to it

namespace fullshard::tensor {

class DeviceStream {
 public:
  operator CUstream_st*() const { return stream_; }

  // Kernels that the CPU runs in tests have no device, and so no stream.
  static DeviceStream of_emulation() { return DeviceStream(nullptr); }

 private:
  friend class KernelLaunch;
  explicit DeviceStream(CUstream_st* stream) : stream_(stream) {}

  CUstream_st* stream_;
};

}  // namespace fullshard::tensor
