// SPDX-License-Identifier: Apache-2.0
#include "fullshard/tiers/tier_options.h"

#include <fmt/format.h>

#include <limits>

namespace fullshard::tiers {
namespace {

class OffloadChecks {
 public:
  OffloadChecks(const TierOptions& options, int stage) : options_(options), stage_(stage) {}

  std::vector<OffloadProblem> run() {
    check_parameters();
    check_optimizer();
    check_beside_everything();
    if (options_.uses_disk()) {
      if (auto problem = problem_of(options_.disk)) add("aio." + problem->key, problem->message);
    }
    return std::move(problems_);
  }

 private:
  void add(std::string key, std::string message, std::string suggestion = "") {
    problems_.push_back({std::move(key), std::move(message), std::move(suggestion)});
  }
  // As the key says it.
  static const char* word_of(Tier tier) { return tier == Tier::disk ? "nvme" : "cpu"; }

  void check_parameters() {
    const OffloadPlace& target = options_.parameters;
    if (target.tier == Tier::device) return;
    if (stage_ != 3) {
      add("offload_param.device",
          fmt::format("is {}, but parameters can only be offloaded in stage 3, and the stage is {}",
                      word_of(target.tier), stage_),
          "set the stage to 3, or the device to none");
    }
    if (target.tier != Tier::disk) return;
    check_disk("offload_param", target);
    if (options_.buffer_size < 1) {
      add("offload_param.buffer_size",
          fmt::format("is {}, expected at least 1 element", options_.buffer_size));
    } else if (target.buffer_count > 0 &&
               options_.buffer_size > kMostElements / target.buffer_count) {
      add("offload_param.buffer_size",
          fmt::format("is {}, of which {} are more than any memory", options_.buffer_size,
                      target.buffer_count),
          "make it smaller");
    }
    if (options_.max_in_cpu < 0) {
      add("offload_param.max_in_cpu",
          fmt::format("is {}, expected at least 0", options_.max_in_cpu));
    }
  }

  void check_optimizer() {
    const OffloadPlace& target = options_.optimizer;
    if (target.tier != Tier::device && stage_ < 1) {
      add("offload_optimizer.device",
          fmt::format("is {}, but optimizer states can only be offloaded in stage 1, 2 or 3, and "
                      "the stage is {}",
                      word_of(target.tier), stage_),
          "set the stage to 1, 2 or 3, or the device to none");
    } else if (target.tier == Tier::disk && stage_ != 3) {
      add("offload_optimizer.device",
          fmt::format("is nvme, which needs stage 3, but the stage is {}", stage_),
          "set the stage to 3, or the device to cpu");
    }
    if (target.tier == Tier::disk) check_disk("offload_optimizer", target);
    if (target.tier != Tier::device) check_windows(target);
    if (!options_.ratio) return;
    const double ratio = *options_.ratio;
    if (!(ratio >= 0 && ratio <= 1)) {
      add("offload_optimizer.ratio", fmt::format("is {}, expected a number from 0 to 1", ratio));
    } else if (ratio < 1 && stage_ != 3) {
      add("offload_optimizer.ratio", fmt::format("is {}, expected 1 unless the stage is 3", ratio),
          "set the stage to 3, or leave it away");
    }
  }

  void check_windows(const OffloadPlace& target) {
    if (target.tier == Tier::host && target.buffer_count < 1) {
      add("offload_optimizer.buffer_count",
          fmt::format("is {}, expected at least 1", target.buffer_count));
    }
    if (options_.window_bytes < 1) {
      add("offload.window_bytes",
          fmt::format("is {}, expected a positive size", options_.window_bytes));
    }
  }

  void check_disk(const std::string& section, const OffloadPlace& target) {
    if (target.folder.empty()) {
      add(section + ".device", "is nvme, but nvme_path is not given", "add nvme_path");
    }
    if (target.buffer_count < 1) {
      add(section + ".buffer_count",
          fmt::format("is {}, expected at least 1", target.buffer_count));
    }
  }

  void check_beside_everything() {
    if (!options_.everything) return;
    if (options_.parameters.tier != Tier::device || options_.optimizer.tier != Tier::device) {
      add("offload_params", "is true beside offload_param or offload_optimizer",
          "keep one of them");
    }
  }

  static constexpr int64_t kMostElements = std::numeric_limits<int64_t>::max() / 16;

  const TierOptions& options_;
  const int stage_;
  std::vector<OffloadProblem> problems_;
};

}  // namespace

std::vector<OffloadProblem> offload_problems(const TierOptions& options, int stage) {
  return OffloadChecks(options, stage).run();
}

}  // namespace fullshard::tiers
