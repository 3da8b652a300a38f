// SPDX-License-Identifier: Apache-2.0
#include "fullshard/comm/gpu/stream_watch.h"

#include <fmt/format.h>

#include <cstdio>
#include <utility>
#include <vector>

#include "fullshard/base/error.h"
#include "fullshard/comm/call_terms.h"

namespace fullshard::comm {
namespace {

constexpr std::chrono::milliseconds kPause{100};
// A call this old is asked about: a rank that has just ended well leaves nothing undone.
constexpr std::chrono::seconds kUnsuspected{1};

std::string subject_of(const LinkCall& call) {
  return fmt::format("{} (group {}, sequence {})", describe_call(call.operation, call.unit),
                     call.group, call.sequence);
}

std::string first_line_of(const std::exception& error) {
  const std::string text = error.what();  // torch's errors carry a backtrace below
  return text.substr(0, text.find('\n'));
}

}  // namespace

StreamWatch::StreamWatch(Options options)
    : options_(std::move(options)), thread_([this] { run(); }) {}

StreamWatch::~StreamWatch() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  ending_.notify_one();
  thread_.join();
}

void StreamWatch::add_link(Owner owner, Link link) {
  const std::scoped_lock locks(links_mutex_, mutex_);
  links_[owner].link = std::move(link);
}

void StreamWatch::remove_link(Owner owner) {
  const std::scoped_lock locks(links_mutex_, mutex_);
  links_.erase(owner);
}

void StreamWatch::add(Owner owner, LinkCall call, std::function<bool()> is_done) {
  auto watched = std::make_shared<Watched>(Watched{std::move(call), std::move(is_done)});
  const std::lock_guard lock(mutex_);
  links_.at(owner).calls.push_back(std::move(watched));
}

void StreamWatch::check_sound() const {
  const std::lock_guard lock(mutex_);
  if (!failure_.empty()) throw Error(failure_);
}

bool StreamWatch::is_sound() const {
  const std::lock_guard lock(mutex_);
  return failure_.empty();
}

void StreamWatch::abandon(const std::string& why) {
  const std::lock_guard links_lock(links_mutex_);
  {
    const std::lock_guard lock(mutex_);
    if (!failure_.empty()) return;
    failure_ = why;
  }
  if (options_.on_failure) options_.on_failure(why);
  let_go_of_all();
}

// Nothing may leave this thread: the process would end before it has said why.
void StreamWatch::run() {
  try {
    if (options_.enter_thread) options_.enter_thread();
  } catch (const std::exception& error) {
    const std::lock_guard links_lock(links_mutex_);
    give_up(first_line_of(error));
  }
  std::unique_lock lock(mutex_);
  while (!is_ending_) {
    lock.unlock();
    if (is_sound()) look();
    lock.lock();
    ending_.wait_for(lock, kPause, [this] { return is_ending_; });
  }
}

void StreamWatch::look() {
  const std::lock_guard links_lock(links_mutex_);
  for (auto& [owner, entry] : links_) {
    std::shared_ptr<Watched> watched;
    try {
      watched = oldest_of(entry);
      if (watched) look_at(entry.link, *watched);
    } catch (const Error& error) {
      return give_up(error.what());
    } catch (const std::exception& error) {
      return give_up(
          fmt::format("{}: the device failed: {}", entry.link.name, first_line_of(error)));
    }
  }
}

// The first call that has not ended; those before it are forgotten.
std::shared_ptr<StreamWatch::Watched> StreamWatch::oldest_of(Entry& entry) {
  while (true) {
    std::shared_ptr<Watched> oldest;
    {
      const std::lock_guard lock(mutex_);
      if (entry.calls.empty()) return nullptr;
      oldest = entry.calls.front();
    }
    if (!oldest->is_done()) return oldest;
    const std::lock_guard lock(mutex_);
    entry.calls.pop_front();
    if (!entry.calls.empty()) entry.calls.front()->waited = AwakeTime();
  }
}

void StreamWatch::look_at(const Link& link, Watched& watched) {
  const std::string fault = link.find_fault ? link.find_fault() : "";
  if (!fault.empty()) {
    if (link.peers) link.peers->look_for_gone(watched.call);
    fail("{}: {} {}", link.name, subject_of(watched.call), fault);
  }
  const auto waited = watched.waited.passed();
  if (link.peers && waited >= kUnsuspected) link.peers->look(watched.call, waited);
}

// The failure stands before a call is let go, so whoever waited for one sees it when he goes on.
void StreamWatch::give_up(const std::string& why) {
  {
    const std::lock_guard lock(mutex_);
    failure_ = why;
  }
  fmt::print(stderr, "error: {}\n", why);
  std::fflush(stderr);
  if (options_.on_failure) options_.on_failure(why);
  let_go_of_all();
}

// Side by side: letting go of one may have to wait until the kernels of the others have ended.
void StreamWatch::let_go_of_all() {
  std::vector<std::thread> threads;
  for (auto& [owner, entry] : links_) {
    threads.emplace_back([this, &let_go = entry.link.let_go] {
      try {
        if (options_.enter_thread) options_.enter_thread();
        let_go();
      } catch (const std::exception& error) {
        fmt::print(stderr, "error: letting go of a link: {}\n", first_line_of(error));
      }
    });
  }
  for (auto& thread : threads) thread.join();
}

WatchedLink::WatchedLink(std::shared_ptr<StreamWatch> watch, StreamWatch::Link link)
    : watch_(std::move(watch)), peers_(link.peers) {
  watch_->add_link(this, std::move(link));
}

WatchedLink::~WatchedLink() { watch_->remove_link(this); }

LinkCall WatchedLink::begin(const Call& call) {
  watch_->check_sound();
  LinkCall begun(call, ++number_);
  if (peers_) peers_->note(begun);
  return begun;
}

void WatchedLink::end(LinkCall call, std::function<bool()> is_done) {
  watch_->add(this, std::move(call), std::move(is_done));
}

void WatchedLink::look(const LinkCall& call, std::chrono::milliseconds waited) const {
  watch_->check_sound();
  if (peers_) peers_->look(call, waited);
}

void WatchedLink::look_for_gone(const LinkCall& call) const {
  watch_->check_sound();
  if (peers_) peers_->look_for_gone(call);
}

}  // namespace fullshard::comm
