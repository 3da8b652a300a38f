// SPDX-License-Identifier: Apache-2.0
#include "fullshard/memory/host_number.h"

namespace fullshard::memory {

HostNumber::HostNumber(const at::Tensor& number)
    : on_host_(number.detach().to(at::kCPU, /*non_blocking=*/true)) {
  if (number.is_cpu()) return;
  // With a time, so that others can be told from it.
  arrival_ = RecordedEvent::of_caller(number.device(), RecordedEvent::Timing::on);
}

double HostNumber::wait() const {
  if (arrival_) arrival_->wait();
  return on_host_.item<double>();
}

}  // namespace fullshard::memory
