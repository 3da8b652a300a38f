// SPDX-License-Identifier: Apache-2.0
// The ranks of a group that talk over gloo: all of them, or one of each host. Whether they make the
// same call is told with the first message of that call, which carries a small payload as well:
// small collectives are one message.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "fullshard/comm/call_terms.h"
#include "fullshard/comm/gloo/gloo_group.h"

namespace fullshard::comm {

class GlooLane {
 public:
  static constexpr int64_t kFirstMessage = 4096;
  static constexpr int64_t kMostCarried = kFirstMessage - static_cast<int64_t>(sizeof(CallTerms));

  // `ranks` of the lane, in the world; `name` of the whole group. A rank that has no lane has no
  // group either, and only waits for others of its host.
  GlooLane(std::unique_ptr<GlooGroup> group, std::vector<int> ranks, std::string name);

  int size() const { return static_cast<int>(ranks_.size()); }
  GlooGroup& group() { return *group_; }
  void cut() noexcept {
    if (group_) group_->cut();
  }
  void give_up() noexcept {
    if (group_) group_->give_up();
  }

  // Exchanges the terms and at most kMostCarried bytes of every rank: its row of what is returned,
  // [size][bytes]. Nothing else of the call has been sent before. A Disagreement when terms differ.
  at::Tensor meet(const CallTerms& terms, const at::Tensor& payload);

 private:
  const std::unique_ptr<GlooGroup> group_;
  const std::vector<int> ranks_;
  const std::string name_;
  at::Tensor sent_, received_;  // [size][kFirstMessage], as long as whatever the ranks call: those
                                // that disagree must not read each other's bytes wrongly
};

}  // namespace fullshard::comm
