// SPDX-License-Identifier: Apache-2.0
// The ranks of one host and the memory they share: one arena per rank that the others can read, one
// common arena, and for each rank the note of what it did last. Made once per world; backends for
// groups of its ranks come from it.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fullshard/comm/backend.h"
#include "fullshard/comm/missing.h"
#include "fullshard/comm/timeouts.h"

namespace fullshard::comm {

class Rendezvous;

class ShmDomain {
 public:
  // Processes of one host. Collective. `names` of its ranks in messages: their ranks in the world,
  // where that has several hosts.
  static std::shared_ptr<ShmDomain> join(Rendezvous& rendezvous, int rank, int size,
                                         const Timeouts& timeouts,
                                         const std::vector<int>& names = {});
  // Threads of this process: one domain per rank.
  static std::vector<std::shared_ptr<ShmDomain>> for_threads(int size, const Timeouts& timeouts,
                                                             const std::vector<int>& names = {});

  virtual ~ShmDomain() = default;

  // `groups` cuts all ranks of the domain into groups; gives the backend of the group that holds
  // this rank. All ranks call it in the same order with the same groups.
  virtual std::shared_ptr<Backend> make_backend(const std::vector<std::vector<int>>& groups,
                                                const std::string& name) = 0;
  // This rank makes no more calls: at once when it ended well (others that wait for it are told),
  // with the reason when it failed. A process that dies needs no call.
  virtual void leave(const std::string& reason) noexcept = 0;
  // A rank that waits asks this too: who is known to be missing in the world, of which this host is
  // one of several. Before the first call.
  virtual void ask_outside(std::function<std::optional<Missing>()> ask) = 0;
  // As ShmWatch's. Any thread.
  virtual void enter_beyond() noexcept = 0;
  virtual void leave_beyond() noexcept = 0;
};

}  // namespace fullshard::comm
