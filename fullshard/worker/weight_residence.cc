// SPDX-License-Identifier: Apache-2.0
#include "fullshard/worker/weight_residence.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <fmt/format.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <chrono>
#include <optional>

#include "fullshard/base/bytes.h"
#include "fullshard/base/error.h"
#include "fullshard/base/standard_streams.h"
#include "fullshard/engine/engine_access.h"
#include "fullshard/generation/cache_size.h"
#include "fullshard/launch/cgroup.h"
#include "fullshard/memory/available_memory.h"
#include "fullshard/memory/device_memory.h"
#include "fullshard/memory/measure_bus.h"
#include "fullshard/tiers/host_memory_speed.h"

namespace fullshard::worker {
namespace {

// Integers keep their dtype: weights in 8 bits.
int64_t weight_bytes_of(const LanguageModel& model, const ShardOptions& options) {
  int64_t bytes = 0;
  for (const auto& parameter : model.parameters()) {
    const auto own = parameter.scalar_type();
    const auto held = at::isFloatingType(own) ? options.param_dtype.value_or(own) : own;
    bytes += parameter.numel() * static_cast<int64_t>(c10::elementSize(held));
  }
  return bytes;
}

std::string smaller_batch(const WeightNeeds& needs) {
  return needs.command == "eval" ? "a smaller --micro-batch"
                                 : "a smaller --batch, fewer --max-new-tokens";
}

[[noreturn]] void refuse_weights(const WeightNeeds& needs, const std::string& what_to_do) {
  const std::string cache =
      needs.command == "eval"
          ? ""
          : fmt::format("the keys and values of a batch {}, ", format_bytes(needs.cache_bytes));
  fail_as(ErrorKind::no_fit, "{}: the weights take {}, {}activations {}, but {} {}; {}",
          needs.command, format_bytes(needs.num_copies * needs.weight_bytes), cache,
          format_bytes(needs.activation_bytes), format_bytes(needs.available_bytes),
          needs.is_cpu ? "of memory are free" : "of the device are free", what_to_do);
}

// Bytes per second of reading and writing on the device itself.
double device_bandwidth(at::Device device) {
  constexpr int64_t kBytes = 512 * kMiB;
  const auto options = at::TensorOptions().dtype(at::kByte).device(device);
  const auto from = at::empty({kBytes}, options), to = at::empty({kBytes}, options);
  double best = 0;
  for (int round = 0; round < 3; ++round) {
    memory::synchronise(device);
    const auto start = std::chrono::steady_clock::now();
    to.copy_(from);
    memory::synchronise(device);
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
    best = std::max(best, 2.0 * static_cast<double>(kBytes) / time.count());
  }
  return best;
}

double resident_bandwidth(at::Device device) {
  if (!device.is_cpu()) return device_bandwidth(device);
  constexpr int kRounds = 2;
  return tiers::measure_host_memory(at::get_num_threads(), 96 * kMiB, kRounds).bytes_per_second;
}

std::optional<double> fetch_bandwidth(tiers::Tier tier, at::Device device) {
  if (device.is_cpu() || tier != tiers::Tier::host) return std::nullopt;
  constexpr int kRounds = 2;
  const auto bus = memory::measure_bus(256 * kMiB, kRounds);
  if (!bus) return std::nullopt;
  return bus->to_device;
}

int64_t available_here(at::Device device) {
  const int64_t available = memory::available_bytes(device);
  const auto limit = launch::cgroup_limits().memory_bytes;
  return device.is_cpu() && limit ? std::min(available, *limit) : available;
}

// Ranks must reach the same decision, and the one with the least free memory decides.
int64_t lowest_of_all(const World& world, int64_t own) {
  auto negative = at::full({1}, -own, at::TensorOptions().dtype(at::kLong));
  world.communicator().all_reduce(negative, ReduceOp::max, "free memory").wait();
  return -negative.item<int64_t>();
}

}  // namespace

planning::PassBytes plan_passes(const World& world,
                                const std::function<planning::PassBytes()>& plan) {
  try {
    return plan();
  } catch (const std::exception& error) {
    if (world.rank() == 0) {
      base::say(fmt::format("warning: memory: not planned: {}\n", error.what()));
    }
    return {};
  }
}

WeightNeeds weight_needs(const LanguageModel& model, const World& world,
                         const ShardOptions& options, const planning::PassBytes& passes) {
  WeightNeeds needs{.command = "generate",
                    .weight_bytes = weight_bytes_of(model, options),
                    .cache_bytes = passes.cache,
                    .activation_bytes = passes.activations,
                    .available_bytes = lowest_of_all(world, available_here(world.device())),
                    .is_cpu = world.device().is_cpu()};
  if (!needs.is_cpu) return needs;
  // Ranks of one host share its memory, and use one copy of what is gathered.
  needs.cache_bytes *= world.local_size();
  needs.activation_bytes *= world.local_size();
  if (!options.share_host_copy) needs.num_copies = world.local_size();
  return needs;
}

void place_cache(WeightNeeds& needs, const World& world, int64_t num_layers,
                 const std::optional<bool>& wanted) {
  // The layer that computes and the next one.
  const int64_t window_bytes = 2 * needs.cache_bytes / std::max<int64_t>(num_layers, 1);
  const bool is_cheaper =
      !needs.is_cpu && generation::is_cache_cheaper_on_host(
                           {.weight_bytes = needs.weight_bytes,
                            .cache_bytes = needs.cache_bytes,
                            .window_bytes = window_bytes,
                            .device_bytes = needs.available_bytes - needs.activation_bytes});
  needs.keeps_cache_on_host = wanted.value_or(is_cheaper);
  if (!needs.keeps_cache_on_host || needs.is_cpu) return;
  const int64_t room =
      lowest_of_all(world, available_here(at::kCPU)) / std::max(world.local_size(), 1);
  if (needs.cache_bytes > room) {
    fail_as(ErrorKind::no_fit,
            "generate: the keys and values of a batch take {} of host memory, "
            "which has {} for each rank; use a smaller --batch or fewer --max-new-tokens",
            format_bytes(needs.cache_bytes), format_bytes(room));
  }
  needs.cache_bytes = window_bytes;
}

void place_weights(const WeightNeeds& needs, const World& world, bool are_in_files,
                   ShardOptions& options) {
  options.schedule.repeats_forward = true;
  auto& place = options.offload.parameters;
  place.reads_in_place = place.tier == tiers::Tier::disk && are_in_files;
  if (needs.fits_whole() || place.tier != tiers::Tier::device) return;
  if (needs.is_cpu) {
    refuse_weights(needs, "use --offload param:FOLDER, which leaves the weights on a disk, " +
                              smaller_batch(needs) + ", or --precision bf16");
  }
  const int64_t at_rest = needs.weight_bytes / world.size();
  if (at_rest + needs.batch_bytes() > needs.available_bytes || world.size() == 1) {
    place.tier = tiers::Tier::host;
  }
}

WeightResidence weight_residence(const ShardedModel& model, const WeightNeeds& needs,
                                 const std::optional<double>& resident_share) {
  const auto& engine = engine::EngineAccess::of(model);
  const tiers::Tier tier = model.options().offload.parameters.tier;
  // On a CPU device host memory is where weights are anyway.
  const bool is_asked_for =
      tier == tiers::Tier::disk || (tier == tiers::Tier::host && !needs.is_cpu);
  std::vector<tiers::UnitBytes> units;
  for (const auto& unit : engine.units()) {
    int64_t bytes = 0;
    for (const auto& group : unit->groups()) {
      for (const auto& parameter : group->parameters()) {
        bytes += parameter.numel() * static_cast<int64_t>(parameter.element_size());
      }
    }
    units.push_back({unit->path(), bytes, unit->path().empty()});
  }
  const double share = resident_share.value_or(is_asked_for ? 0.0 : 1.0);
  const int64_t room = needs.available_bytes - needs.batch_bytes();
  const auto found = tiers::resident_units(units, {.device_bytes = room, .most_share = share});
  if (!found) {
    refuse_weights(needs, "use " + smaller_batch(needs) + ", or --precision bf16");
  }
  WeightResidence residence{.units = *found,
                            .warnings = {},
                            .tier = tier,
                            .reads_in_place = model.options().offload.parameters.reads_in_place};
  if (!found->is_whole() && needs.fits_whole()) {
    residence.warnings.push_back(fmt::format(
        "{}: {} of the weights are fetched in every step although all of them would fit; "
        "leave out {}",
        needs.command, format_bytes(found->fetched_bytes),
        is_asked_for ? "offload_param" : "--resident-share"));
  }
  return residence;
}

std::string WeightResidence::text() const {
  if (units.is_whole()) {
    return fmt::format("weights: {}, whole", format_bytes(units.resident_bytes));
  }
  const char* from = reads_in_place              ? "the model's files"
                     : tier == tiers::Tier::disk ? "a disk"
                     : tier == tiers::Tier::host ? "host memory"
                                                 : "the shards of all ranks";
  return fmt::format("weights: {} stay, {} are fetched from {} in every step",
                     format_bytes(units.resident_bytes), format_bytes(units.fetched_bytes), from);
}

std::optional<double> step_floor(const WeightResidence& residence, at::Device device) {
  const auto& units = residence.units;
  double seconds = static_cast<double>(units.resident_bytes) / resident_bandwidth(device);
  if (units.is_whole()) return seconds;
  const auto bandwidth = fetch_bandwidth(residence.tier, device);
  if (!bandwidth) return std::nullopt;
  return seconds + static_cast<double>(units.fetched_bytes) / *bandwidth;
}

}  // namespace fullshard::worker
