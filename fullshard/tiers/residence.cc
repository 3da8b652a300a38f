// SPDX-License-Identifier: Apache-2.0
#include "fullshard/tiers/residence.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>

#include "fullshard/base/error.h"

namespace fullshard::tiers {
namespace {

Spread all_on(Tier tier, int64_t numel) {
  Spread spread;
  spread.numel[static_cast<size_t>(tier)] = numel;
  return spread;
}

// The first `near_numel` elements here, the rest there.
Spread cut(int64_t numel, int64_t near_numel, Tier near, Tier far) {
  Spread spread = all_on(far, numel - near_numel);
  spread.numel[static_cast<size_t>(near)] += near_numel;
  return spread;
}

// How much of a group stays near: all, or whole steps.
int64_t near_part(int64_t numel, int64_t room) {
  if (room >= numel) return numel;
  return std::max<int64_t>(room, 0) / kResidenceStep * kResidenceStep;
}

int64_t state_bytes(const GroupSize& group) { return group.master_bytes + group.optimizer_bytes; }

int64_t bytes_per_element(const GroupSize& group, Purpose purpose) {
  switch (purpose) {
    case Purpose::parameters:
      return group.parameter_bytes;
    case Purpose::gradients:
      return group.gradient_bytes;
    case Purpose::master:
      return group.master_bytes;
    case Purpose::optimizer:
      return group.optimizer_bytes;
    default:
      return 0;
  }
}

class ResidenceMaker {
 public:
  ResidenceMaker(const TierOptions& options, std::span<const GroupSize> groups,
                 const ResidenceBudget& budget)
      : options_(options), groups_(groups), budget_(budget) {}

  Residence make() {
    for (const GroupSize& group : groups_) {
      check(group.numel >= 0, "offload: group '{}' has {} elements", group.name, group.numel);
      residence_.groups.push_back({.parameters = all_on(Tier::device, group.numel),
                                   .gradients = all_on(Tier::device, trained(group)),
                                   .states = all_on(Tier::device, trained(group))});
    }
    residence_.steps_on_host = options_.everything;
    place_parameters();
    place_gradients();
    place_states();
    if (budget_.is_cpu) keep_host_with_device();
    return std::move(residence_);
  }

 private:
  static int64_t trained(const GroupSize& group) {
    return group.gradient_bytes == 0 ? 0 : group.numel;
  }

  void place_parameters() {
    const Tier tier = options_.everything ? Tier::host : options_.parameters.tier;
    // What the disk need not hold: the units that forward needs first.
    int64_t room = tier == Tier::disk ? options_.max_in_cpu : 0;
    for (size_t i = 0; i < groups_.size(); ++i) {
      const int64_t near = tier == Tier::disk ? near_part(groups_[i].numel, room) : 0;
      residence_.groups[i].parameters = cut(groups_[i].numel, near, Tier::host, tier);
      room = near == groups_[i].numel ? room - near : 0;
    }
  }

  void place_gradients() {
    if (!options_.everything) return;
    for (size_t i = 0; i < groups_.size(); ++i) {
      residence_.groups[i].gradients = all_on(Tier::host, trained(groups_[i]));
    }
  }

  void place_states() {
    const Tier tier = options_.everything ? Tier::host : options_.optimizer.tier;
    if (tier == Tier::device) return;
    int64_t room = resident_elements();
    int64_t bytes = options_.everything ? 0 : resident_bytes();
    for (size_t i = 0; i < groups_.size(); ++i) {
      const int64_t numel = trained(groups_[i]);
      const int64_t each = std::max<int64_t>(state_bytes(groups_[i]), 1);
      const int64_t near = near_part(numel, std::min(room, bytes / each));
      residence_.groups[i].states = cut(numel, near, Tier::device, tier);
      // Nothing after a cut: what forward needs first stays together.
      room = near == numel ? room - near : 0;
      bytes -= near * each;
    }
  }

  // By the ratio: all of them but those that are offloaded.
  int64_t resident_elements() const {
    constexpr int64_t kAll = std::numeric_limits<int64_t>::max();
    if (!options_.ratio) return budget_.device_bytes ? kAll : 0;
    int64_t total = 0;
    for (const GroupSize& group : groups_) total += trained(group);
    const auto offloaded = static_cast<int64_t>(
        std::llround(static_cast<long double>(*options_.ratio) * static_cast<long double>(total)));
    return total - offloaded;
  }
  int64_t resident_bytes() const {
    return std::max<int64_t>(budget_.device_bytes.value_or(std::numeric_limits<int64_t>::max()), 0);
  }

  // They are the same memory: the ledger counts it once, as the device's.
  void keep_host_with_device() {
    const bool asks_for_host = options_.everything || options_.parameters.tier == Tier::host ||
                               options_.optimizer.tier == Tier::host;
    if (asks_for_host) {
      residence_.notes.emplace_back(
          "on a CPU device host memory holds everything already: nothing is moved");
    }
    for (GroupResidence& group : residence_.groups) {
      for (Spread* spread : {&group.parameters, &group.gradients, &group.states}) {
        spread->numel[static_cast<size_t>(Tier::device)] += spread->on(Tier::host);
        spread->numel[static_cast<size_t>(Tier::host)] = 0;
      }
    }
  }

  const TierOptions& options_;
  const std::span<const GroupSize> groups_;
  const ResidenceBudget& budget_;
  Residence residence_;
};

}  // namespace

const Spread& GroupResidence::of(Purpose purpose) const {
  assert(purpose == Purpose::parameters || purpose == Purpose::gradients ||
         purpose == Purpose::master || purpose == Purpose::optimizer);
  if (purpose == Purpose::parameters) return parameters;
  return purpose == Purpose::gradients ? gradients : states;
}

int64_t Residence::bytes(std::span<const GroupSize> sizes, Purpose purpose, Tier tier) const {
  int64_t sum = 0;
  for (size_t i = 0; i < groups.size(); ++i) {
    sum += groups[i].of(purpose).on(tier) * bytes_per_element(sizes[i], purpose);
  }
  return sum;
}

Residence residence_of(const TierOptions& options, int stage, std::span<const GroupSize> groups,
                       const ResidenceBudget& budget) {
  const auto problems = offload_problems(options, stage);
  if (!problems.empty()) {
    const OffloadProblem& first = problems.front();
    fail_as(ErrorKind::usage, "{}: {}{}{}", first.key, first.message,
            first.suggestion.empty() ? "" : "; ", first.suggestion);
  }
  return ResidenceMaker(options, groups, budget).make();
}

}  // namespace fullshard::tiers
