#include <fmt/format.h>

#include <utility>

#include "fullshard/base/error.h"
#include "fullshard/comm/nccl_watch.h"

namespace fullshard {
namespace {

constexpr std::chrono::milliseconds kPause{100};

}  // namespace

NcclWatch::NcclWatch(ncclComm_t communicator, std::chrono::milliseconds limit)
    : communicator_(communicator), limit_(limit), thread_([this] { watch(); }) {}

NcclWatch::~NcclWatch() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  ending_.notify_one();
  thread_.join();
}

void NcclWatch::add(const Call& call, std::shared_ptr<c10::Event> done) {
  check_sound();
  const std::lock_guard lock(mutex_);
  calls_.push_back(
      {fmt::format("{} of {}, call {} of group {}", name_of(call.operation),
                   call.unit.empty() ? "no unit" : call.unit, call.sequence, call.group),
       std::move(done), Clock::now()});
}

void NcclWatch::check_sound() const {
  const std::lock_guard lock(mutex_);
  if (!failure_.empty()) throw Error(failure_);
}

void NcclWatch::watch() {
  std::unique_lock lock(mutex_);
  while (!is_ending_) {
    look();
    ending_.wait_for(lock, kPause, [this] { return is_ending_; });
  }
}

void NcclWatch::look() {
  while (!calls_.empty() && calls_.front().done->query()) calls_.pop_front();
  if (!failure_.empty() || calls_.empty()) return;
  ncclResult_t state = ncclSuccess;
  ncclCommGetAsyncError(communicator_, &state);
  if (state != ncclSuccess && state != ncclInProgress) {
    give_up(fmt::format("failed: {}", ncclGetErrorString(state)));
  } else if (Clock::now() - calls_.front().issued > limit_) {
    give_up(
        fmt::format("has not ended after {} s: a rank did not come to it, or is gone; see the "
                    "other ranks' logs",
                    std::chrono::duration_cast<std::chrono::seconds>(limit_).count()));
  }
}

void NcclWatch::give_up(const std::string& why) {
  failure_ = fmt::format("nccl: {} {}", calls_.front().what, why);
  fmt::print(stderr, "error: {}\n", failure_);
  ncclCommAbort(communicator_);  // lets go of a host that waits for the stream
}

}  // namespace fullshard
