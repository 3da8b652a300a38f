// SPDX-License-Identifier: Apache-2.0
#include "fullshard/simulation/sharding_factors.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "fullshard/base/bytes.h"
#include "fullshard/report/records/number_text.h"
#include "fullshard/simulation/simulation_text.h"

namespace fullshard::simulation {
namespace {

const TierEstimate& on_device(const ShardedSimulation& row) {
  return row.run.memory.on(tiers::Tier::device);
}

std::string bytes_of_rank(double bytes) { return format_bytes(static_cast<int64_t>(bytes)); }

std::string factor_line(const std::vector<std::string>& cells) {
  return fmt::format("{:>6} {:>6} {:>10} {:>10} {:>5} {:>11} {:>14} {:>9} {:>13}\n", cells[0],
                     cells[1], cells[2], cells[3], cells[4], cells[5], cells[6], cells[7],
                     cells[8]);
}

}  // namespace

std::vector<ShardedSimulation> simulate_factors(
    int ranks, const std::function<Simulation(int factor)>& simulated) {
  std::vector<ShardedSimulation> rows;
  for (int factor = 1; factor <= ranks; ++factor) {
    if (ranks % factor == 0) rows.push_back({factor, simulated(factor)});
  }
  return rows;
}

std::string sharding_factors_text(const std::vector<ShardedSimulation>& rows,
                                  const Cluster& cluster, int64_t memory_bytes) {
  std::string text = factor_line({"factor", "copies", "at rest", "at most", "fits", "sent a step",
                                  "between hosts", "step", "tokens/s/GPU"});
  for (const ShardedSimulation& row : rows) {
    const TierEstimate& device = on_device(row);
    text += factor_line(
        {fmt::format("{}", row.factor), fmt::format("{}", row.run.ranks / row.factor),
         format_bytes(device.rest_bytes), format_bytes(device.peak_bytes),
         device.peak_bytes <= memory_bytes ? "yes" : "no", bytes_of_rank(row.run.sent.all),
         bytes_of_rank(row.run.sent.between_hosts), report::format_seconds(row.run.step_seconds),
         fmt::format("{:.0f}", row.run.tokens_per_second_per_gpu())});
  }
  return text +
         fmt::format("Values of one rank of {}, by fullshard simulate on {} ({} of memory). {}\n",
                     rows.front().run.ranks, cluster.name, format_bytes(memory_bytes),
                     simulation_error_text());
}

std::string sharding_factors_json(const std::vector<ShardedSimulation>& rows,
                                  int64_t memory_bytes) {
  auto all = nlohmann::ordered_json::array();
  for (const ShardedSimulation& row : rows) {
    const TierEstimate& device = on_device(row);
    all.push_back({{"factor", row.factor},
                   {"copies", row.run.ranks / row.factor},
                   {"rest_bytes", device.rest_bytes},
                   {"peak_bytes", device.peak_bytes},
                   {"fits", device.peak_bytes <= memory_bytes},
                   {"sent_bytes", static_cast<int64_t>(row.run.sent.all)},
                   {"sent_between_hosts_bytes", static_cast<int64_t>(row.run.sent.between_hosts)},
                   {"step_s", row.run.step_seconds},
                   {"tokens_per_s_per_gpu", row.run.tokens_per_second_per_gpu()},
                   {"exposed_communication_s", row.run.timeline.exposed_communication}});
  }
  return all.dump();
}

}  // namespace fullshard::simulation
