// SPDX-License-Identifier: Apache-2.0
// What the host knows of the ranks behind a link that carries calls beside it, as NCCL does: who
// has come to a call, who is gone, who is late. Without it such a call would name nobody.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "fullshard/comm/backend.h"

namespace fullshard::comm {

// One call of a link. Owns its texts: it is looked at long after it was issued.
struct LinkCall {
  LinkCall(const Call& call, uint64_t number_)
      : number(number_),
        sequence(call.sequence),
        operation(call.operation),
        group(call.group),
        unit(call.unit),
        limit(call.limit) {}

  Call call() const { return {sequence, operation, group, unit, 0, limit}; }

  uint64_t number;  // of the link, counted from 1: its calls may have gaps in the sequence
  uint64_t sequence;
  Operation operation;
  std::string group;
  std::string unit;
  TimeLimit limit;
};

// One per rank and group. note() is called in the order of calls, the others on any thread.
class LinkPeers {
 public:
  virtual ~LinkPeers() = default;

  // This rank issues the call.
  virtual void note(const LinkCall& call) = 0;
  // The call has been under way for `waited`. An Error says that it will not end, and through whom:
  // a rank died or failed, or has not come within the call's limit.
  virtual void look(const LinkCall& call, std::chrono::milliseconds waited) = 0;
  // The link says that somebody broke off: an Error that names the rank, if one is known to be
  // gone. May take a second.
  virtual void look_for_gone(const LinkCall& call) = 0;
};

}  // namespace fullshard::comm
