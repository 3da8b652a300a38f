// SPDX-License-Identifier: Apache-2.0
// A call on a stream of its own, in order with the caller's: it starts behind what the caller has
// issued, and the caller's stream goes on behind it once he waits. The host never waits.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/StreamGuard.h>

#include <exception>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "fullshard/comm/call_times.h"
#include "fullshard/comm/communicator.h"

namespace fullshard::comm {

class StreamOrder {
 public:
  // Until destroyed, new work goes to `stream`.
  explicit StreamOrder(c10::Stream stream)
      : guard_(wait_for_caller(stream)),
        stream_(stream),
        times_(std::make_shared<CallTimes>(stream)) {}

  // Everything that belongs to the call has been issued.
  std::shared_ptr<CallTimes> end() const {
    times_->ended.emplace(stream_, CallTimes::kTimed);
    return times_;
  }
  // `used`: everything that the call reads or writes; lives until the caller waits. `drained`, if
  // any: peers have read what he lent them.
  static Work behind(std::shared_ptr<CallTimes> times, std::vector<at::Tensor> used,
                     std::optional<memory::RecordedEvent> drained = std::nullopt) {
    return Work(std::make_unique<Behind>(std::move(times), std::move(used), std::move(drained)));
  }

 private:
  class Behind : public Work::Pending {
   public:
    Behind(std::shared_ptr<CallTimes> times, std::vector<at::Tensor> used,
           std::optional<memory::RecordedEvent> drained)
        : times_(std::move(times)), used_(std::move(used)), drained_(std::move(drained)) {}

    // Whoever drops a call instead of waiting for it gives its memory back behind it all the same.
    ~Behind() override {
      if (used_.empty()) return;
      try {
        wait();
      } catch (const std::exception&) {  // the device has failed: nothing uses it any more
      }
    }

    void wait() override {
      wait_for_result();
      if (drained_) drained_->hold(memory::current_stream(drained_->device()));
      used_.clear();
    }
    void wait_for_result() override {
      const auto caller = memory::current_stream(times_->began.device());
      if (!times_->needed) times_->needed.emplace(caller, CallTimes::kTimed);
      times_->ended->hold(caller);
    }
    std::shared_ptr<const CallTimes> times() const override { return times_; }

   private:
    std::shared_ptr<CallTimes> times_;
    std::vector<at::Tensor> used_;
    std::optional<memory::RecordedEvent> drained_;
  };

  static c10::Stream wait_for_caller(c10::Stream stream) {
    memory::RecordedEvent::of_caller(stream.device()).hold(stream);
    return stream;
  }

  c10::StreamGuard guard_;
  c10::Stream stream_;
  std::shared_ptr<CallTimes> times_;
};

}  // namespace fullshard::comm
