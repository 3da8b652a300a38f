// SPDX-License-Identifier: Apache-2.0
#include "fullshard/simulation/kernel_cost.h"

#include <algorithm>

namespace fullshard::simulation {
namespace {

double roofline_seconds(const tensor::OperatorCall& call, const Cluster& cluster) {
  const double moving =
      static_cast<double>(call.bytes) / (kMemoryShare * cluster.gpu.memory_bandwidth);
  double rate = 0;
  if (call.kind == tensor::OperatorKind::product) rate = cluster.gpu.bf16_flops;
  if (call.kind == tensor::OperatorKind::attention) rate = cluster.gpu.attention_flops;
  if (rate == 0) return moving;
  if (call.dtype == at::kFloat) rate *= kFp32Share;
  if (call.dtype == at::kFloat8_e4m3fn && cluster.gpu.fp8_flops > 0) rate = cluster.gpu.fp8_flops;
  return std::max(moving, call.flops / rate);
}

}  // namespace

double seconds_of(const tensor::OperatorCall& call, const Cluster& cluster,
                  const KernelTable& table) {
  using Kind = tensor::OperatorKind;
  if (call.kind == Kind::to_device || call.kind == Kind::to_host) {
    return static_cast<double>(call.bytes) / cluster.bus_bandwidth;
  }
  return kKernelGap + table.seconds_of(call).value_or(roofline_seconds(call, cluster));
}

}  // namespace fullshard::simulation
