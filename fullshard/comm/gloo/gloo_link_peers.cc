// SPDX-License-Identifier: Apache-2.0
#include "fullshard/comm/gloo/gloo_link_peers.h"

#include <fmt/format.h>

#include <utility>

#include "fullshard/base/error.h"
#include "fullshard/comm/call_terms.h"

namespace fullshard::comm {
namespace {

using Clock = std::chrono::steady_clock;

// Every look asks the store for every rank's beat.
constexpr std::chrono::seconds kBetweenLooks{60};

}  // namespace

GlooLinkPeers::GlooLinkPeers(GlooMembers members, std::shared_ptr<GlooWatch> watch,
                             const Timeouts& timeouts)
    : members_(std::move(members)),
      watch_(std::move(watch)),
      timeouts_(timeouts),
      progress_(fmt::format("link {} of rank {}", members_.group, members_.ranks.front())) {}

void GlooLinkPeers::note(const LinkCall& call) { watch_->note_progress(progress_, call.number); }

void GlooLinkPeers::look(const LinkCall& call, std::chrono::milliseconds waited) {
  if (const auto missing = watch_->missing()) {
    throw Error(missing->message(watch_->rank(), call.call()));
  }
  if (waited >= length_of(call.limit, timeouts_)) give_up(call, waited);
  if (waited >= kLateAfter && Clock::now() >= next_look_ && watch_->is_store_answering()) {
    look_around(call, waited);
    next_look_ = Clock::now() + kBetweenLooks;
  }
}

void GlooLinkPeers::look_for_gone(const LinkCall& call) {
  if (const auto gone = watch_->find_gone(members_.ranks, {})) {
    throw Error(gone->message(watch_->rank(), call.call()));
  }
}

// Names who is late; finds a host that vanished by its silence, which the next look() reports.
void GlooLinkPeers::look_around(const LinkCall& call, std::chrono::milliseconds waited) {
  if (watch_->find_silent(members_.ranks, beats_)) return;
  if (const auto absent = watch_->find_absent(members_.ranks, progress_, call.number)) {
    late_.say(subject_of(call), absent->rank, waited, absent->last,
              length_of(call.limit, timeouts_));
  }
}

void GlooLinkPeers::give_up(const LinkCall& call, std::chrono::milliseconds waited) {
  const auto late =
      watch_->find_late(members_.ranks, progress_, call.number, waited, call.limit, {});
  if (late) throw Error(late->message(watch_->rank(), call.call()));
  const std::string limit(name_of(call.limit));
  fail("{} has not ended after {:.3g} s ({} timeout), although all ranks have come to it; {}",
       subject_of(call), static_cast<double>(waited.count()) / 1000, limit, remedy_of(limit));
}

std::string GlooLinkPeers::subject_of(const LinkCall& call) const {
  return fmt::format("rank {}: {} (group {}, sequence {})", watch_->rank(),
                     describe_call(call.operation, call.unit), call.group, call.sequence);
}

}  // namespace fullshard::comm
