// SPDX-License-Identifier: Apache-2.0
// The ranks behind a link, known through the beats that every rank writes into the store.
#pragma once

#include <chrono>
#include <map>
#include <memory>

#include "fullshard/comm/gloo/gloo_worker.h"
#include "fullshard/comm/late_notice.h"
#include "fullshard/comm/link_peers.h"

namespace fullshard::comm {

class GlooLinkPeers final : public LinkPeers {
 public:
  GlooLinkPeers(GlooMembers members, std::shared_ptr<GlooWatch> watch, const Timeouts& timeouts);

  void note(const LinkCall& call) override;
  void look(const LinkCall& call, std::chrono::milliseconds waited) override;
  void look_for_gone(const LinkCall& call) override;

 private:
  void look_around(const LinkCall& call, std::chrono::milliseconds waited);
  [[noreturn]] void give_up(const LinkCall& call, std::chrono::milliseconds waited);
  std::string subject_of(const LinkCall& call) const;

  const GlooMembers members_;
  const std::shared_ptr<GlooWatch> watch_;
  const Timeouts timeouts_;
  const std::string progress_;  // under which the beats tell how far the link has come
  LateNotice late_;
  std::chrono::steady_clock::time_point next_look_;
  std::map<int, uint64_t> beats_;  // of the last look
};

}  // namespace fullshard::comm
