// SPDX-License-Identifier: Apache-2.0
#include "fullshard/comm/late_notice.h"

#include <spdlog/spdlog.h>

namespace fullshard::comm {
namespace {

constexpr std::chrono::minutes kSayAgain{1};

double in_seconds(std::chrono::milliseconds time) {
  return std::chrono::duration<double>(time).count();
}

}  // namespace

void LateNotice::say(const std::string& subject, int late_rank, std::chrono::milliseconds waited,
                     const std::string& last_act, std::chrono::milliseconds limit) {
  {
    const std::lock_guard lock(mutex_);
    const auto now = Clock::now();
    if (rank_ == late_rank && said_ && now - *said_ < kSayAgain) return;
    rank_ = late_rank;
    said_ = now;
  }
  const std::string text = fmt::format("{} has waited {:.3g} s for rank {}; {}", subject,
                                       in_seconds(waited), late_rank, last_act);
  if (limit >= kNoLimit) {
    spdlog::info("{}; no timeout applies", text);
  } else {
    spdlog::warn("{}; it is given up after {:.3g} s", text, in_seconds(limit));
  }
}

}  // namespace fullshard::comm
