// SPDX-License-Identifier: Apache-2.0
// Which of the tensors that a GPU has come by held infinities or NaN. Nothing waits until somebody
// asks. A build without CUDA refuses by a message.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

namespace fullshard::engine {

class DeviceFlags {
 public:
  static constexpr int64_t kMost =
      4096;  // tensors between two clears; later ones are not looked at

  // Raises flag `number` when the device finds such a value in a floating tensor of a GPU.
  void look_at(int64_t number, const at::Tensor& tensor);
  // The lowest flag that is raised; waits for the device.
  std::optional<int64_t> first() const;
  void clear();

 private:
  at::Tensor flags_;  // int32 [kMost]; made at the first look
  bool is_used_ = false;
};

}  // namespace fullshard::engine
