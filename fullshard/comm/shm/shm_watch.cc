// SPDX-License-Identifier: Apache-2.0
#include "fullshard/comm/shm/shm_watch.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

#include "fullshard/base/error.h"
#include "fullshard/comm/shm/shm_waiting.h"

namespace fullshard::comm {

Lifeline Lifeline::of_this_process() {
#ifdef SYS_pidfd_open
  const long pidfd = ::syscall(SYS_pidfd_open, ::getpid(), 0);
  if (pidfd >= 0) return {ShmDescriptor(static_cast<int>(pidfd)), ShmDescriptor()};
#endif
  int ends[2];
  const bool is_made = ::pipe2(ends, O_CLOEXEC) == 0;
  check(is_made, "shm: cannot make a pipe to watch this rank by: {}", std::strerror(errno));
  return {ShmDescriptor(ends[0]), ShmDescriptor(ends[1])};
}

std::string describe(const Act& act) {
  return act.unit.empty() ? std::string(act.what) : fmt::format("{} of {}", act.what, act.unit);
}

ShmWatch::ShmWatch(DomainBlock& block, int rank, int size, const Timeouts& timeouts,
                   std::vector<ShmDescriptor> lifelines, std::vector<int> names)
    : block_(block),
      rank_(rank),
      size_(size),
      timeouts_(timeouts),
      lifelines_(std::move(lifelines)),
      names_(std::move(names)) {}

void ShmWatch::note(const Act& act, CallProgress progress) {
  Note& note = notes(rank_);
  note.what.store(act.what);
  note.unit.store(act.unit);
  note.group.store(act.group);
  note.sequence.store(act.sequence, std::memory_order_relaxed);
  note.progress.store(progress, std::memory_order_relaxed);
}

Cause ShmWatch::how_gone(int rank) {
  switch (notes(rank).presence.load()) {
    case Presence::ended:
      return Cause::ended;
    case Presence::failed:
      return Cause::failed;
    case Presence::present:
      break;
  }
  if (lifelines_.empty() || rank == rank_) return Cause::none;
  pollfd line = {lifelines_[rank].get(), POLLIN, 0};
  return ::poll(&line, 1, 0) > 0 ? Cause::died : Cause::none;
}

// The missing rank may itself wait for another: the one at the end of the chain is late.
int ShmWatch::root_of(std::span<const int> missing) {
  int rank = missing.front();
  for (const int candidate : missing) {
    if (notes(candidate).waits_for.load() == 0) return candidate;
  }
  for (int step = 0; step < size_; ++step) {
    const int next = notes(rank).waits_for.load() - 1;
    if (next < 0) return rank;
    rank = next;
  }
  return missing.front();  // they wait for each other in a circle
}

// The late rank may wait for another host, whose ranks find out at the same limit who is missing
// there: that takes them longer than a look at this host's memory.
std::chrono::milliseconds ShmWatch::limit_for(int late, const Act& act) {
  constexpr auto kNewsFromBeyond = std::chrono::seconds(10);
  const auto limit = length_of(act.limit, timeouts_);
  const bool may_hear = outside_ && late != rank_ && notes(late).beyond.load() > 0;
  return may_hear ? limit + kNewsFromBeyond : limit;
}

std::string ShmWatch::circle_through(int missing) {
  std::string text;
  int rank = rank_, next = missing;
  for (int step = 0; step < size_; ++step) {
    const Note& note = notes(rank);
    const std::string what = note.what.load(), unit = note.unit.load(), group = note.group.load();
    text +=
        fmt::format("{}rank {} in {} (group {}, sequence {}) for rank {}", text.empty() ? "" : "; ",
                    name_of_rank(rank), describe({what, unit, group, 0}), group,
                    note.sequence.load(std::memory_order_relaxed), name_of_rank(next));
    if (next == rank_) return text;
    rank = next;
    next = notes(rank).waits_for.load() - 1;
    if (next < 0) return {};
  }
  return {};
}

std::chrono::milliseconds ShmWatch::age_of(const std::string& circle) {
  const std::lock_guard lock(circle_mutex_);
  if (circle != circle_) {
    circle_ = circle;
    circle_age_ = AwakeTime();
  }
  return circle_age_.passed();
}

// Ranks that make different calls in different groups never meet at one sequence number. They are
// found by waiting for each other while nothing moves.
void ShmWatch::look_for_circle(int missing) {
  constexpr auto kStandstill = std::chrono::seconds(2);
  const std::string circle = circle_through(missing);
  const auto age = age_of(circle);
  if (circle.empty() || age < kStandstill) return;
  disagree(
      fmt::format("ranks wait for each other: {}; all ranks must make the same calls in the "
                  "same order",
                  circle));
}

void ShmWatch::settle(const Finding& finding) noexcept {
  Verdict& verdict = block_.verdict;
  uint32_t expected = Verdict::open;
  if (!verdict.state.compare_exchange_strong(expected, Verdict::in_writing)) return;
  verdict.cause = finding.cause;
  verdict.rank = finding.rank;
  verdict.milliseconds = finding.milliseconds;
  verdict.text.store(finding.text);
  verdict.state = Verdict::settled;
  ring_everyone();
}

ShmWatch::Finding ShmWatch::verdict() const {
  const Verdict& verdict = block_.verdict;
  return {verdict.cause.load(), verdict.rank.load(),
          static_cast<int64_t>(verdict.milliseconds.load()), verdict.text.load()};
}

// Reports the verdict, which may be another's. A rank that was killed while it wrote one leaves it
// unsettled: then everybody reports what they found themselves.
void ShmWatch::conclude(const Finding& finding, const Act& act) {
  settle(finding);
  const auto start = std::chrono::steady_clock::now();
  while (!is_settled() && std::chrono::steady_clock::now() - start < std::chrono::seconds(1)) {
    std::this_thread::yield();
  }
  report(is_settled() ? verdict() : finding, act);
}

void ShmWatch::look_for(std::span<const int> missing, const Act& act,
                        std::chrono::milliseconds waited,
                        const std::function<bool(int)>& is_missing) {
  if (is_settled()) report(verdict(), act);
  for (const int rank : missing) {
    const Cause cause = how_gone(rank);
    if (cause != Cause::none && is_missing(rank)) conclude({cause, rank, 0, {}}, act);
  }
  look_outside(act);
  if (missing.empty()) return act.is_beside ? void() : stop_waiting();
  const auto limit = length_of(act.limit, timeouts_);
  const int late = root_of(missing);
  if (waited >= limit_for(late, act)) {
    const std::string name(name_of(act.limit));
    conclude({Cause::late, late, waited.count(), name}, act);
  }
  if (waited >= kLateAfter) {
    late_.say(subject_of(act), name_of_rank(late), waited, last_act_of(late, act.group), limit);
  }
  if (act.is_beside) return;
  note(act, CallProgress::issued);
  notes(rank_).waits_for = missing.front() + 1;
  look_for_circle(missing.front());
}

void ShmWatch::look_beside(std::span<const int> missing, const Act& act,
                           std::chrono::milliseconds waited) {
  if (is_settled()) report(verdict(), act);
  for (int rank = 0; rank < size_; ++rank) {
    const Cause cause = rank == rank_ ? Cause::none : how_gone(rank);
    const bool has_come = std::find(missing.begin(), missing.end(), rank) == missing.end();
    // One that came and then ended well has left nothing undone.
    if (cause == Cause::none || (cause == Cause::ended && has_come)) continue;
    conclude({cause, rank, 0, {}}, act);
  }
  look_outside(act);
  const auto limit = length_of(act.limit, timeouts_);
  const std::string name(name_of(act.limit));
  if (waited >= limit) {
    check(!missing.empty(),
          "{} has not ended after {:.3g} s ({} timeout), although all ranks have come to it; {}",
          subject_of(act), static_cast<double>(waited.count()) / 1000, name, remedy_of(name));
    conclude({Cause::late, root_of(missing), waited.count(), name}, act);
  }
  if (waited >= kLateAfter && !missing.empty()) {
    const int late = root_of(missing);
    late_.say(subject_of(act), name_of_rank(late), waited, last_act_of(late, act.group), limit);
  }
}

void ShmWatch::look_outside(const Act& act) {
  const auto missing = outside_ ? outside_() : std::nullopt;
  if (missing) conclude({Cause::outside, rank_, 0, missing->encoded()}, act);
}

std::string ShmWatch::last_act_of(int rank, std::string_view group) {
  const Note& note = notes(rank);
  const CallProgress progress = note.progress.load(std::memory_order_relaxed);
  if (progress == CallProgress::none) return "it has made no call yet";
  const std::string what = note.what.load(), unit = note.unit.load(), in = note.group.load();
  const uint64_t sequence = note.sequence.load(std::memory_order_relaxed);
  std::string where = in == group ? "" : "group " + in;
  if (sequence != 0) where += fmt::format("{}sequence {}", where.empty() ? "" : ", ", sequence);
  return fmt::format("its last act: {}{}, {}", describe({what, unit, in, sequence}),
                     where.empty() ? "" : " (" + where + ")",
                     progress == CallProgress::finished ? "finished" : "under way");
}

std::string ShmWatch::subject_of(const Act& act) const {
  const std::string counted = act.sequence == 0 ? "" : fmt::format(", sequence {}", act.sequence);
  return fmt::format("rank {}: {} (group {}{})", name_of_rank(rank_), describe(act), act.group,
                     counted);
}

void ShmWatch::report(const Finding& finding, const Act& act) {
  if (finding.cause == Cause::disagreement) throw Disagreement(finding.text);
  const std::string subject = subject_of(act);
  if (finding.cause == Cause::outside) {
    throw Error(Missing::decoded(finding.text).message(name_of_rank(rank_), subject));
  }
  const double seconds = static_cast<double>(finding.milliseconds) / 1000;
  if (finding.rank == rank_) {
    fail("{} comes too late: the other ranks have given this one up{}", subject,
         finding.cause == Cause::late
             ? fmt::format(" after {:.3g} s; {}", seconds, remedy_of(finding.text))
             : "");
  }
  const int name = name_of_rank(finding.rank);
  const std::string head = fmt::format("{} waits for rank {}, which", subject, name);
  const std::string last = last_act_of(finding.rank, act.group);
  switch (finding.cause) {
    case Cause::died:
      fail("{} died; {}; see rank {}'s log", head, last, name);
    case Cause::ended:
      fail("{} has left; {}; all ranks must make the same calls", head, last);
    case Cause::failed:
      fail("{} failed: {}; {}; see rank {}'s log", head, finding.text, last, name);
    default:
      fail("{} has not come for {:.3g} s ({} timeout); {}; {}", head, seconds, finding.text, last,
           remedy_of(finding.text));
  }
}

void ShmWatch::disagree(const std::string& message) {
  settle({Cause::disagreement, rank_, 0, message});
  throw Disagreement(message);
}

void ShmWatch::leave(const std::string& reason) noexcept {
  Note& note = notes(rank_);
  if (note.presence.load() != Presence::present) return;
  // One that fails because another is missing in the world must not be blamed by its neighbours.
  const auto missing = outside_ && !reason.empty() ? outside_() : std::nullopt;
  if (missing && missing->rank != name_of_rank(rank_)) {
    settle({Cause::outside, rank_, 0, missing->encoded()});
  } else if (!reason.empty()) {
    settle({Cause::failed, rank_, 0, reason});
  }
  note.presence = reason.empty() ? Presence::ended : Presence::failed;
  ring_everyone();
}

void ShmWatch::ring_everyone() noexcept {
  for (int rank = 0; rank < size_; ++rank) {
    if (rank != rank_) ring(block_.doorbells[rank]);
  }
}

}  // namespace fullshard::comm
