#include <fmt/format.h>

#include <cstdio>
#include <utility>

#include "fullshard/base/error.h"
#include "fullshard/comm/stream_watch.h"

namespace fullshard {
namespace {

constexpr std::chrono::milliseconds kPause{100};

}  // namespace

StreamWatch::StreamWatch(Link link, std::chrono::milliseconds limit)
    : link_(std::move(link)), limit_(limit), thread_([this] { watch(); }) {}

StreamWatch::~StreamWatch() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  ending_.notify_one();
  thread_.join();
}

void StreamWatch::add(const Call& call, std::shared_ptr<const c10::Event> done) {
  check_sound();
  const std::lock_guard lock(mutex_);
  calls_.push_back(
      {fmt::format("{} of {}, call {} of group {}", name_of(call.operation),
                   call.unit.empty() ? "no unit" : call.unit, call.sequence, call.group),
       std::move(done), Clock::now()});
}

void StreamWatch::check_sound() const {
  const std::lock_guard lock(mutex_);
  if (!failure_.empty()) throw Error(failure_);
}

void StreamWatch::watch() {
  std::unique_lock lock(mutex_);
  while (!is_ending_) {
    look();
    ending_.wait_for(lock, kPause, [this] { return is_ending_; });
  }
}

void StreamWatch::look() {
  while (!calls_.empty() && calls_.front().done->query()) calls_.pop_front();
  if (!failure_.empty() || calls_.empty()) return;
  const std::string fault = link_.find_fault();
  if (!fault.empty()) {
    give_up(fault);
  } else if (Clock::now() - calls_.front().issued > limit_) {
    give_up(
        fmt::format("has not ended after {} s: a rank did not come to it, or is gone; see the "
                    "other ranks' logs",
                    std::chrono::duration_cast<std::chrono::seconds>(limit_).count()));
  }
}

void StreamWatch::give_up(const std::string& why) {
  failure_ = fmt::format("{}: {} {}", link_.name, calls_.front().what, why);
  fmt::print(stderr, "error: {}\n", failure_);
  std::fflush(stderr);
  link_.let_go();
}

}  // namespace fullshard
