// SPDX-License-Identifier: Apache-2.0
// The launchers of a build without CUDA, where no world has a GPU.
#include "fullshard/base/error.h"
#include "fullshard/optim/cuda/device_rules.h"
#include "fullshard/tensor/device_runtime.h"

namespace fullshard::optim {
namespace {

using tensor::DeviceStream;

[[noreturn]] void refuse() { fail("an optimizer's step on a GPU: {}", tensor::launch_problem()); }

}  // namespace

void launch_step(const DeviceLaunch&, const AdamWStep*, DeviceStream) { refuse(); }
void launch_step(const DeviceLaunch&, const SgdStep*, DeviceStream) { refuse(); }
void launch_step(const DeviceLaunch&, const AdagradStep*, DeviceStream) { refuse(); }
void launch_step(const DeviceLaunch&, const LionStep*, DeviceStream) { refuse(); }
void launch_step(const DeviceLaunch&, const LambStep*, DeviceStream) { refuse(); }
void launch_moments(const DeviceLaunch&, const LambStep*, DeviceStream) { refuse(); }
void launch_squares_by_tensor(const DevicePiece*, int, const LambSquares*, LambSquares*,
                              DeviceStream) {
  refuse();
}
void launch_trust_ratios(const LambSquares*, int, int, TrustRatioBounds, float*, DeviceStream) {
  refuse();
}

}  // namespace fullshard::optim
