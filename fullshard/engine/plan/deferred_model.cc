// SPDX-License-Identifier: Apache-2.0
#include "fullshard/engine/plan/deferred_model.h"

#include <ATen/core/grad_mode.h>

#include "fullshard/nn/deferred.h"

namespace fullshard::engine {
namespace {

void make_zeros(at::Tensor tensor, at::Device device) {
  materialise(tensor, device);
  tensor.zero_();
}

std::string first_deferred(const std::vector<NamedParameter>& parameters) {
  for (const auto& parameter : parameters) {
    if (parameter.tensor.is_meta()) return parameter.names.front();
  }
  return {};
}

std::vector<std::string> materialise_buffers(const std::vector<nn::NamedTensor>& buffers,
                                             at::Device device) {
  std::vector<std::string> names;
  for (const auto& buffer : buffers) {
    if (!buffer.tensor.is_meta()) continue;
    make_zeros(buffer.tensor, device);
    names.push_back(buffer.name);
  }
  return names;
}

}  // namespace

std::string first_deferred(const WrapPlan& plan) {
  for (const auto& unit : plan.units) {
    const auto name = first_deferred(unit.parameters);
    if (!name.empty()) return name;
  }
  return first_deferred(plan.ignored_parameters);
}

void materialise_unsharded(WrapPlan& plan, bool taken, at::Device device) {
  at::NoGradGuard no_grad;
  auto& noted = plan.deferred_buffers;
  for (const auto& unit : plan.units) {
    const auto names = materialise_buffers(unit.buffers, device);
    if (!taken) noted.insert(noted.end(), names.begin(), names.end());
  }
  const auto names = materialise_buffers(plan.ignored_buffers, device);
  noted.insert(noted.end(), names.begin(), names.end());
  for (const auto& parameter : plan.ignored_parameters) {
    if (parameter.tensor.is_meta()) make_zeros(parameter.tensor, device);
  }
}

}  // namespace fullshard::engine
