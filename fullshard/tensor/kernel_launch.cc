// SPDX-License-Identifier: Apache-2.0
#include "fullshard/tensor/kernel_launch.h"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/ranges.h>

#include <string>

#include "fullshard/base/error.h"
#include "fullshard/tensor/address_space.h"
#include "fullshard/tensor/device_runtime.h"

namespace fullshard::tensor {
namespace {

std::string shape_of(const at::Tensor& tensor) {
  return fmt::format("a tensor [{}] of {}", fmt::join(tensor.sizes(), ", "),
                     c10::toString(tensor.scalar_type()));
}

}  // namespace

void check_reachable(std::string_view kernel, at::Device device, const at::Tensor& tensor,
                     Reach reach) {
  if (!tensor.defined() || tensor.numel() == 0 || is_pretended()) return;
  const bool is_there = tensor.device() == device ||
                        (reach == Reach::pinned_too && tensor.is_cpu() && tensor.is_pinned());
  check(is_there, "GPU kernel '{}' on {}: {} lies on {}; move it to the device first", kernel,
        device.str(), shape_of(tensor), tensor.device().str());
  check(!AddressSpace::any_owns(tensor.const_data_ptr()),
        "GPU kernel '{}' on {}: {} is of a plan and has no memory; this is a bug of Fullshard, "
        "please report it",
        kernel, device.str(), shape_of(tensor));
}

KernelLaunch::KernelLaunch(std::string_view name, at::Device device)
    : KernelLaunch(name, c10::impl::VirtualGuardImpl(device.type()).getStream(device)) {}

KernelLaunch::KernelLaunch(std::string_view name, const c10::Stream& stream)
    : name_(name), guard_(stream.device()), stream_(stream) {}

bool KernelLaunch::can_reach(const at::Tensor& tensor) const {
  check_reachable(name_, stream_.device(), tensor);
  return tensor.defined() && tensor.numel() > 0;
}

const void* KernelLaunch::read(const at::Tensor& tensor) const {
  return can_reach(tensor) ? tensor.const_data_ptr() : nullptr;
}

void* KernelLaunch::write(const at::Tensor& tensor) const {
  return can_reach(tensor) ? tensor.mutable_data_ptr() : nullptr;
}

void KernelLaunch::check_launched() const {
  const auto problem = launch_problem();
  check(problem.empty(), "GPU kernel '{}' on {}: {}", name_, stream_.device().str(), problem);
}

}  // namespace fullshard::tensor
