// SPDX-License-Identifier: Apache-2.0
// A number that a device computes, on its way to the host:
//   HostNumber norm(norm_on_device);  // put into the device's stream
//   launch_more_work();               // which the number does not wait for
//   use(norm.wait());
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "fullshard/memory/recorded_event.h"

namespace fullshard::memory {

class HostNumber {
 public:
  explicit HostNumber(const at::Tensor& number);  // of one element

  double wait() const;
  // The mark in the device's stream that wait() waits for; null for a number of the CPU.
  const RecordedEvent* arrival() const { return arrival_ ? &*arrival_ : nullptr; }

 private:
  at::Tensor on_host_;
  std::optional<RecordedEvent> arrival_;
};

}  // namespace fullshard::memory
