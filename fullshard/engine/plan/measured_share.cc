// SPDX-License-Identifier: Apache-2.0
#include "fullshard/engine/plan/measured_share.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <spdlog/spdlog.h>

#include "fullshard/memory/measure_bus.h"
#include "fullshard/tiers/host_memory_speed.h"
#include "fullshard/tiers/step_share.h"

namespace fullshard::engine {
namespace {

constexpr int64_t kBusBytes = 64 * kMiB;
constexpr int64_t kTriadBytes = 768 * kMiB;
constexpr int kRounds = 3;

bool is_undecided(const tiers::TierOptions& options, at::Device device) {
  const bool rests_on_host = options.everything || options.optimizer.tier == tiers::Tier::host;
  return rests_on_host && !device.is_cpu() && !options.host_share &&
         options.stepping == tiers::Stepping::automatic;
}

}  // namespace

tiers::TierOptions with_measured_share(tiers::TierOptions options, const World& world) {
  if (!is_undecided(options, world.device())) return options;
  const auto measured = memory::measure_bus(kBusBytes, kRounds);
  if (!measured) {  // a device that this build does not know: it updates what is its own
    options.host_share = 0;
    return options;
  }
  auto bus = *measured;
  auto memory = tiers::measure_host_memory(at::get_num_threads(), kTriadBytes, kRounds);
  if (world.size() > 1) {
    auto times = at::empty({2}, at::kDouble);
    auto* const values = times.mutable_data_ptr<double>();
    values[0] = 1 / bus.both;
    values[1] = 1 / memory.bytes_per_second;
    world.communicator().all_reduce(times, ReduceOp::max, "speeds of bus and memory").wait();
    bus.both = 1 / values[0];
    memory.bytes_per_second = 1 / values[1];
  }
  const auto share = tiers::step_share(bus, memory.bytes_per_second);
  options.host_share = share.host;
  if (world.rank() == 0) {
    spdlog::info("offload: bus {:.0f} GB/s both ways at once, host memory {:.0f} GB/s; {}",
                 bus.both / 1e9, memory.bytes_per_second / 1e9, share.text());
  }
  return options;
}

}  // namespace fullshard::engine
