// SPDX-License-Identifier: Apache-2.0
// A disk that a test breaks: real transfers, some of which get another answer.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <utility>

#include "fullshard/disk/transfers.h"

namespace fullshard::testing {

// The answer to a transfer that is not carried out; kCarryOut: the disk's own.
inline constexpr int64_t kCarryOut = INT64_MIN;
using Answer = std::function<int64_t(const disk::Transfer& transfer)>;

class FakeDisk : public disk::Transfers {
 public:
  explicit FakeDisk(Answer answer) : answer_(std::move(answer)) {}

  void prepare(int64_t id, const disk::Transfer& transfer) override {
    prepared_.emplace_back(id, transfer);
  }
  void submit() override {
    for (const auto& [id, transfer] : prepared_) {
      const int64_t answer = answer_(transfer);
      ended_.push_back({id, answer == kCarryOut ? disk::move_bytes(transfer) : answer});
    }
    prepared_.clear();
  }
  Ended wait() override {
    const Ended ended = ended_.front();
    ended_.pop_front();
    return ended;
  }

 private:
  Answer answer_;
  std::deque<std::pair<int64_t, disk::Transfer>> prepared_;
  std::deque<Ended> ended_;
};

}  // namespace fullshard::testing
