// SPDX-License-Identifier: Apache-2.0
#include "fullshard/simulation/kernel_cost.h"

#include <algorithm>
#include <cmath>

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
  const bool is_fp8 = call.dtype == at::kFloat8_e4m3fn || call.dtype == at::kFloat8_e5m2;
  if (is_fp8 && cluster.gpu.fp8_flops > 0) rate = cluster.gpu.fp8_flops;
  return std::max(moving, call.flops / rate);
}

// Where the standard normal distribution reaches this probability; bisection is enough for a
// number that is computed once.
double normal_quantile(double probability) {
  double low = -10, high = 10;
  for (int step = 0; step < 60; ++step) {
    const double middle = (low + high) / 2;
    const double reached = 0.5 * std::erfc(-middle / std::sqrt(2.0));
    (reached < probability ? low : high) = middle;
  }
  return low;
}

}  // namespace

// Blom's approximation of the expected maximum of so many.
double slowest_factor(const Cluster& cluster, int ranks) {
  if (ranks < 2) return 1;
  return 1 + cluster.gpu.spread * normal_quantile((ranks - 0.375) / (ranks + 0.25));
}

double seconds_of(const tensor::OperatorCall& call, const Cluster& cluster,
                  const KernelTable& table) {
  using Kind = tensor::OperatorKind;
  if (call.kind == Kind::to_device || call.kind == Kind::to_host) {
    return static_cast<double>(call.bytes) / cluster.bus_bandwidth;
  }
  return kKernelGap + table.seconds_of(call).value_or(roofline_seconds(call, cluster));
}

}  // namespace fullshard::simulation
