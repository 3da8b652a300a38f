// SPDX-License-Identifier: Apache-2.0
#include "fullshard/train/run/run_facts.h"

#include <torch/csrc/api/include/torch/version.h>
#include <unistd.h>

#include <cstdlib>
#include <ctime>

#include "fullshard/base/host_name.h"
#include "fullshard/engine/engine_access.h"
#include "fullshard/tiers/wear.h"
#include "fullshard/train/run/step_totals.h"

namespace fullshard::train {
namespace {

constexpr int64_t kKinds = int64_t{tiers::kNumPurposes} * tiers::kNumTiers;

std::vector<MemoryShare> shares_of(const int64_t* bytes) {
  std::vector<MemoryShare> shares;
  for (int purpose = 0; purpose < tiers::kNumPurposes; ++purpose) {
    for (int tier = 0; tier < tiers::kNumTiers; ++tier) {
      const int64_t held = bytes[purpose * tiers::kNumTiers + tier];
      if (held == 0) continue;
      shares.push_back({std::string(tiers::name_of(static_cast<tiers::Purpose>(purpose))),
                        std::string(tiers::name_of(static_cast<tiers::Tier>(tier))), held});
    }
  }
  return shares;
}

// One rank that holds everything: what the shards of one copy add up to, and whole parameters and
// gradients.
std::vector<MemoryShare> unsharded_of(const ShardedModel& sharded, int64_t optimizer_bytes) {
  const ShardOptions& options = sharded.options();
  const int64_t numel = sharded.numel();
  const auto bytes = [&](const std::optional<at::ScalarType>& dtype) {
    return numel * static_cast<int64_t>(c10::elementSize(dtype.value_or(at::kFloat)));
  };
  std::vector<MemoryShare> shares = {
      {std::string(tiers::name_of(tiers::Purpose::parameters)), "device",
       bytes(options.param_dtype)},
      {std::string(tiers::name_of(tiers::Purpose::gradients)), "device",
       bytes(options.gradient_dtype)},
      {std::string(tiers::name_of(tiers::Purpose::optimizer)), "device", optimizer_bytes}};
  if (options.param_dtype && *options.param_dtype != options.master_dtype.value_or(at::kFloat)) {
    const auto groups = engine::EngineAccess::of(sharded).trainable_groups();
    const bool in_halves = !groups.empty() && groups.front()->is_in_halves();
    shares.push_back({std::string(tiers::name_of(tiers::Purpose::master)), "device",
                      in_halves ? numel * 2 : bytes(options.master_dtype)});
  }
  return shares;
}

// Of every rank one after the other, [purpose][tier].
at::Tensor gather_peaks(const ShardedModel& sharded) {
  const Communicator& everyone = sharded.mesh().world().communicator();
  const auto all = everyone.allocate(kKinds * everyone.size(), at::kLong);
  const auto own = all.narrow(0, everyone.rank() * kKinds, kKinds);
  for (int purpose = 0; purpose < tiers::kNumPurposes; ++purpose) {
    for (int tier = 0; tier < tiers::kNumTiers; ++tier) {
      own[purpose * tiers::kNumTiers + tier] = sharded.ledger().peak(
          static_cast<tiers::Purpose>(purpose), static_cast<tiers::Tier>(tier));
    }
  }
  everyone.all_gather(all, own, "memory").wait();
  return all;
}

}  // namespace

RunRecord started_record(const ShardedModel& model, const std::vector<std::string>& command) {
  const Mesh& mesh = model.mesh();
  RunRecord record;
  record.versions = {{"fullshard", FULLSHARD_VERSION}, {"libtorch", TORCH_VERSION}};
  record.command = command;
  record.device = mesh.world().device().str();
  record.mesh = {.world = mesh.world().size(),
                 .replicas = mesh.num_replicas(),
                 .shards = mesh.num_shards(),
                 .hosts = {base::host_name()}};
  record.model.parameters = model.numel();
  record.warnings = model.warnings();
  record.started = static_cast<int64_t>(std::time(nullptr));
  return record;
}

report::ProgressOptions run_progress(const base::LauncherEnvironment& launcher) {
  const auto& lent = launcher.terminal.text;
  const int descriptor = lent ? std::atoi(lent->c_str()) : -1;
  const bool is_lent = descriptor > 2 && ::isatty(descriptor) != 0;
  return report::progress_options_for(is_lent ? descriptor : STDERR_FILENO);
}

MemoryPlan memory_of_all(const ShardedModel& model) {
  const at::Tensor all = gather_peaks(model);
  const World& world = model.mesh().world();
  MemoryPlan plan;
  if (world.rank() != 0) return plan;
  int64_t optimizer_bytes = 0;
  const int64_t* bytes = all.const_data_ptr<int64_t>();
  for (int rank = 0; rank < world.size(); ++rank, bytes += kKinds) {
    plan.ranks.push_back(shares_of(bytes));
    for (int tier = 0; tier < tiers::kNumTiers; ++tier) {
      optimizer_bytes +=
          bytes[static_cast<int>(tiers::Purpose::optimizer) * tiers::kNumTiers + tier];
    }
  }
  plan.unsharded = unsharded_of(model, optimizer_bytes / model.mesh().num_replicas());
  return plan;
}

std::optional<DiskTraffic> disk_traffic_of_all(const ShardedModel& model, double seconds) {
  const tiers::TierOptions& options = model.options().offload;
  if (!options.uses_disk()) return std::nullopt;
  const ShardCounters& counters = model.counters();
  // Below 2^53, so that they are exact.
  const StepTotals totals(model.mesh().everyone(),
                          {static_cast<double>(counters.disk_bytes_read),
                           static_cast<double>(counters.disk_bytes_written),
                           counters.disk_read_wait_s, counters.disk_write_wait_s},
                          "disk traffic");
  DiskTraffic disk;
  for (const tiers::OffloadPlace& place : {options.optimizer, options.parameters}) {
    const bool is_new = disk.folders.empty() || disk.folders.front() != place.folder;
    if (place.tier == tiers::Tier::disk && is_new) disk.folders.push_back(place.folder);
  }
  disk.bytes_read = static_cast<int64_t>(totals.sum(0));
  disk.bytes_written = static_cast<int64_t>(totals.sum(1));
  disk.bytes_written_per_day =
      static_cast<int64_t>(tiers::bytes_written_per_day(disk.bytes_written, seconds));
  disk.read_wait_s = totals.largest(2);
  disk.write_wait_s = totals.largest(3);
  return disk;
}

}  // namespace fullshard::train
