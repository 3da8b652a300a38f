// SPDX-License-Identifier: Apache-2.0
#include "fullshard/engine/plan/offload.h"

#include "fullshard/base/error.h"
#include "fullshard/engine/plan/group_spec.h"

namespace fullshard {
namespace {

int64_t trained_numel(const engine::GroupSpec& spec) {
  int64_t numel = 0;
  if (!spec.trainable) return 0;
  for (const auto& parameter : spec.parameters) numel += parameter.tensor.numel();
  return numel;
}

}  // namespace

void check_offload(const StateOffload& options) {
  check(
      options.optimizer != tiers::Tier::disk,
      "offload.optimizer is 'disk', expected 'device' or 'host': states cannot rest on a disk yet");
  check(options.resident_share >= 0 && options.resident_share <= 1,
        "offload.resident_share is {}, expected a share between 0 and 1", options.resident_share);
  check(options.num_windows >= 1, "offload.num_windows is {}, expected at least 1",
        options.num_windows);
  check(options.window_bytes >= 1, "offload.window_bytes is {}, expected a positive size",
        options.window_bytes);
}

void choose_offloaded(const StateOffload& options,
                      std::vector<std::vector<engine::GroupSpec>>& units) {
  int64_t total = 0;
  for (const auto& unit : units) {
    for (const auto& spec : unit) total += trained_numel(spec);
  }
  const double most = options.resident_share * static_cast<double>(total);
  int64_t resident = 0;
  bool is_full = false;  // what comes later does not slip in before it
  for (auto& unit : units) {
    for (auto& spec : unit) {
      if (!spec.trainable) continue;
      const int64_t with_it = resident + trained_numel(spec);
      is_full = is_full || static_cast<double>(with_it) > most;
      spec.states_on_host = is_full;
      if (!is_full) resident = with_it;
    }
  }
}

}  // namespace fullshard
