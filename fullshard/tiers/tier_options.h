// SPDX-License-Identifier: Apache-2.0
// What may leave the device, and where it goes: DeepSpeed's offload_param, offload_optimizer and
// aio, FSDP's offload_params. Plain data; residence.h says what follows for a model.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fullshard/base/bytes.h"
#include "fullshard/disk/transfers.h"
#include "fullshard/tiers/disk_settings.h"
#include "fullshard/tiers/tier.h"

namespace fullshard::tiers {

struct OffloadPlace {
  Tier tier = Tier::device;  // device: nothing is offloaded
  std::string folder{};      // on the disk (nvme_path)
  bool pin_memory = true;    // page-locked host memory, where there is a GPU
  int64_t buffer_count = 4;  // windows on the device, and buffers of the ring beside a disk
  // On a disk, for what nobody changes: values are read in the files they come from, where those
  // hold the same bytes, and not copied into the folder.
  bool reads_in_place = false;
};

// Who updates states that rest in host memory: the device, through windows; the host, with
// gradients that come to it; or, `automatic`, each a share, so that both end at the same time by
// what was measured of the bus and of host memory. The bits are the same.
enum class Stepping { automatic, device, host };

struct TierOptions {
  OffloadPlace parameters{.buffer_count = 5};
  int64_t buffer_size = 100'000'000;   // elements of a buffer for parameters
  int64_t max_in_cpu = 1'000'000'000;  // parameter elements that stay in host memory, not on disk

  OffloadPlace optimizer{};  // states and masters
  // Share of the elements whose states are offloaded. Absent: all, but for what a budget holds.
  std::optional<double> ratio{};
  // Device memory for states that stay there although they could leave; absent: none, but for what
  // the ratio keeps.
  std::optional<int64_t> resident_bytes{};
  bool pipeline_read = true;   // read the next states while some are updated
  bool pipeline_write = true;  // write those that were updated meanwhile
  bool fast_init = false;      // new states are written in one go, not unit by unit
  // Of one window of states: what is fetched, updated and stored at a time.
  int64_t window_bytes = 80 * kMiB;

  Stepping stepping = Stepping::automatic;
  // Share of the offloaded elements that the host updates; absent: as `stepping` says, and where
  // that is automatic and nothing was measured, none.
  std::optional<double> host_share{};

  // FSDP's offload_params: parameters, gradients, masters and states in host memory.
  bool everything = false;

  DiskSettings disk{};

  // For tests: a CPU device streams as an accelerator does, and its windows are host memory too;
  // what pins memory in the driver's place (why not; empty: it is pinned); and a disk that fails.
  bool streams_on_cpu = false;
  std::function<std::string(void* data, int64_t bytes)> pin = {};
  std::function<std::unique_ptr<disk::Transfers>(int depth)> make_transfers = {};

  bool is_any() const {
    return everything || parameters.tier != Tier::device || optimizer.tier != Tier::device;
  }
  bool uses_disk() const { return parameters.tier == Tier::disk || optimizer.tier == Tier::disk; }
};

// A setting that disagrees with the stage or with another one.
struct OffloadProblem {
  // As DeepSpeed spells it: "offload_optimizer.ratio", "aio.block_size", "offload_params".
  std::string key{};
  std::string message{};
  std::string suggestion{};
};

// All of them, in the order of the keys above. `stage` is ZeRO's; FSDP's strategies that shard
// parameters are 3.
std::vector<OffloadProblem> offload_problems(const TierOptions& options, int stage);

}  // namespace fullshard::tiers
