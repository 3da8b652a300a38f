// SPDX-License-Identifier: Apache-2.0
#include "fullshard/tuning/ladder.h"

#include <array>
#include <string>

namespace fullshard::tuning {
namespace {

struct StageRung {
  const char* name;
  int stage;
  Offloaded offloaded;
};

constexpr std::array kStageRungs = {
    StageRung{"ZeRO-1", 1, Offloaded::nothing},
    StageRung{"ZeRO-2", 2, Offloaded::nothing},
    StageRung{"ZeRO-2 + optimizer offload", 2, Offloaded::optimizer},
    StageRung{"ZeRO-3", 3, Offloaded::nothing},
    StageRung{"ZeRO-3 + parameter offload", 3, Offloaded::parameters},
    StageRung{"ZeRO-3 + parameter and optimizer offload", 3, Offloaded::both},
};

constexpr const char* kStageIsGiven = "the stage is given";
constexpr const char* kOffloadIsGiven = "the offload is given";

std::string why_not(const StageRung& step, const LadderOptions& options) {
  const bool offloads = step.offloaded != Offloaded::nothing;
  if (options.stage && (step.stage != *options.stage || !offloads)) return kStageIsGiven;
  if (offloads && options.keeps_offload) return kOffloadIsGiven;
  if (offloads && !options.on_gpus) {
    return "on CPU ranks the host's memory is the device's: nothing would move";
  }
  if (!offloads && options.ranks == 1) return "a single rank has no other to share states with";
  return "";
}

std::string why_not_sixteen_bit(const LadderOptions& options) {
  if (options.is_sixteen_bit) return "it already computes in 16 bit";
  return options.keeps_precision ? "the precision is given" : "";
}

std::string why_not_disk(const LadderOptions& options) {
  if (options.keeps_offload) return kOffloadIsGiven;
  return options.stage.value_or(3) != 3 ? "needs stage 3, but the stage is given" : "";
}

}  // namespace

std::vector<Rung> ladder(const LadderOptions& options) {
  Rung last{.stage = options.stage.value_or(0),
            .recompute = options.keeps_recompute,
            .micro_batch = options.first_batch};
  std::vector<Rung> rungs = {last};
  // A rung that is skipped changes nothing for those above it.
  const auto add = [&](Rung rung, std::string why) {
    rung.passed_over = std::move(why);
    if (rung.passed_over.empty()) last = rung;
    rungs.push_back(std::move(rung));
  };
  Rung next = last;
  next.name = "recomputation";
  next.recompute = true;
  add(next, options.keeps_recompute ? "it is switched on" : "");
  for (const StageRung& step : kStageRungs) {
    next = last;
    next.name = step.name;
    next.stage = step.stage;
    next.offloaded = step.offloaded;
    add(next, why_not(step, options));
  }
  next = last;
  next.name = "16 bit";
  next.sixteen_bit = true;
  add(next, why_not_sixteen_bit(options));
  next = last;
  next.name = "disk";
  next.stage = 3;
  next.offloaded = Offloaded::to_disk;
  add(next, why_not_disk(options));
  return rungs;
}

}  // namespace fullshard::tuning
