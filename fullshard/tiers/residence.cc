// SPDX-License-Identifier: Apache-2.0
#include "fullshard/tiers/residence.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>

#include "fullshard/base/error.h"

namespace fullshard::tiers {
namespace {

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

double host_share(const TierOptions& options) {
  if (options.host_share) return *options.host_share;
  return options.stepping == Stepping::host ? 1 : 0;
}

class ResidenceMaker {
 public:
  ResidenceMaker(const TierOptions& options, std::span<const GroupSize> groups,
                 const ResidenceBudget& budget)
      : options_(options), groups_(groups), budget_(budget) {}

  Residence make() {
    for (const GroupSize& group : groups_) {
      check(group.numel >= 0, "offload: group '{}' has {} elements", group.name, group.numel);
    }
    residence_.groups.resize(groups_.size());
    place_parameters();
    place_gradients();
    place_states();
    place_steps();
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
      if (groups_[i].keeps_parameters) continue;
      const bool is_near = tier == Tier::disk && groups_[i].numel <= room;
      residence_.groups[i].parameters = is_near ? Tier::host : tier;
      room = is_near ? room - groups_[i].numel : 0;
    }
  }

  void place_gradients() {
    if (!options_.everything) return;
    for (size_t i = 0; i < groups_.size(); ++i) {
      if (trained(groups_[i]) > 0) residence_.groups[i].gradients = Tier::host;
    }
  }

  void place_states() {
    const Tier tier = options_.everything ? Tier::host : options_.optimizer.tier;
    if (tier == Tier::device) return;
    int64_t room = resident_elements();
    int64_t bytes = resident_bytes();
    for (size_t i = 0; i < groups_.size(); ++i) {
      const int64_t numel = trained(groups_[i]);
      if (numel == 0) continue;
      const int64_t each = std::max<int64_t>(state_bytes(groups_[i]), 1);
      const bool stays = numel <= room && numel <= bytes / each;
      residence_.groups[i].states = stays ? Tier::device : tier;
      // Nothing behind one that left: what forward needs first stays together.
      room = stays ? room - numel : 0;
      bytes = stays ? bytes - numel * each : 0;
    }
  }

  // The host takes those that forward needs last, so that there is the most time for them.
  void place_steps() {
    int64_t left = host_elements();
    for (size_t i = groups_.size(); i-- > 0 && left > 0;) {
      if (residence_.groups[i].states != Tier::host) continue;
      const int64_t numel = trained(groups_[i]);
      if (numel / 2 > left) break;  // nearer to the share without it
      residence_.groups[i].stepped_on = Tier::host;
      left -= numel;
    }
  }
  int64_t host_elements() const {
    int64_t total = 0;
    for (size_t i = 0; i < groups_.size(); ++i) {
      if (residence_.groups[i].states == Tier::host) total += trained(groups_[i]);
    }
    return static_cast<int64_t>(std::llround(static_cast<long double>(host_share(options_)) *
                                             static_cast<long double>(total)));
  }

  // By the ratio: all of them but those that are offloaded.
  int64_t resident_elements() const {
    constexpr int64_t kAll = std::numeric_limits<int64_t>::max();
    if (options_.everything) return 0;
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
          "offload: on a CPU device host memory holds everything already: nothing is moved");
    }
    for (GroupResidence& group : residence_.groups) {
      for (Tier* tier : {&group.parameters, &group.gradients, &group.states, &group.stepped_on}) {
        if (*tier == Tier::host) *tier = Tier::device;
      }
    }
  }

  const TierOptions& options_;
  const std::span<const GroupSize> groups_;
  const ResidenceBudget& budget_;
  Residence residence_;
};

}  // namespace

Tier GroupResidence::of(Purpose purpose) const {
  assert(purpose == Purpose::parameters || purpose == Purpose::gradients ||
         purpose == Purpose::master || purpose == Purpose::optimizer);
  if (purpose == Purpose::parameters) return parameters;
  return purpose == Purpose::gradients ? gradients : states;
}

bool Residence::uses(Tier tier) const {
  return std::any_of(groups.begin(), groups.end(), [tier](const GroupResidence& group) {
    return group.parameters == tier || group.gradients == tier || group.states == tier;
  });
}

int64_t Residence::bytes(std::span<const GroupSize> sizes, Purpose purpose, Tier tier) const {
  int64_t sum = 0;
  for (size_t i = 0; i < groups.size(); ++i) {
    const bool is_frozen = sizes[i].gradient_bytes == 0 && purpose != Purpose::parameters;
    if (is_frozen || groups[i].of(purpose) != tier) continue;
    sum += sizes[i].numel * bytes_per_element(sizes[i], purpose);
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
