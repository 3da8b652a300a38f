// SPDX-License-Identifier: Apache-2.0
#include "fullshard/memory/host_number.h"

#include <c10/core/impl/VirtualGuardImpl.h>

namespace fullshard::memory {

HostNumber::HostNumber(const at::Tensor& number)
    : on_host_(number.detach().to(at::kCPU, /*non_blocking=*/true)) {
  if (number.is_cpu()) return;
  const c10::impl::VirtualGuardImpl guard(number.device().type());
  // With a time, so that others can be told from it.
  arrival_.emplace(number.device().type(), c10::EventFlag::BACKEND_DEFAULT);
  arrival_->record(guard.getStream(number.device()));
}

double HostNumber::wait() const {
  if (arrival_) arrival_->synchronize();
  return on_host_.item<double>();
}

}  // namespace fullshard::memory
