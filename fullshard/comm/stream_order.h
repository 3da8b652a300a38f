// A call on a stream of its own, in order with the caller's: it starts behind what the caller has
// issued, and the caller's stream goes on behind it once he waits. The host never waits.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>

#include <memory>
#include <utility>
#include <vector>

#include "fullshard/comm/communicator.h"

namespace fullshard {

class StreamOrder {
 public:
  // Until destroyed, new work goes to `stream`.
  explicit StreamOrder(c10::Stream stream) : guard_(wait_for_caller(stream)), stream_(stream) {}

  // Happens when everything issued so far is done.
  std::shared_ptr<c10::Event> end() const {
    auto done = std::make_shared<c10::Event>(stream_.device_type());
    done->record(stream_);
    return done;
  }
  // `used`: everything that the call reads or writes; lives until the caller waits for `done`.
  static Work behind(std::shared_ptr<c10::Event> done, std::vector<at::Tensor> used) {
    return Work(std::make_unique<Behind>(std::move(done), std::move(used)));
  }

 private:
  class Behind : public Work::Pending {
   public:
    Behind(std::shared_ptr<c10::Event> done, std::vector<at::Tensor> used)
        : done_(std::move(done)), used_(std::move(used)) {}
    void wait() override {
      wait_for_result();
      used_.clear();
    }
    void wait_for_result() override { done_->block(current_stream(done_->device())); }

   private:
    std::shared_ptr<c10::Event> done_;
    std::vector<at::Tensor> used_;
  };

  static c10::Stream current_stream(c10::Device device) {
    return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
  }
  static c10::Stream wait_for_caller(c10::Stream stream) {
    c10::Event ready(stream.device_type());
    ready.record(current_stream(stream.device()));
    ready.block(stream);
    return stream;
  }

  c10::StreamGuard guard_;
  c10::Stream stream_;
};

}  // namespace fullshard
