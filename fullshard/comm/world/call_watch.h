// SPDX-License-Identifier: Apache-2.0
// Who is told of the collectives of ranks that are not there (fake_world.h): when each is issued,
// and when the caller's stream comes to need it.
#pragma once

#include <cstdint>

#include "fullshard/comm/backend.h"

namespace fullshard::comm {

// Of a group: how many ranks it has, and how many of them on this rank's host.
struct GroupShape {
  int size = 1;
  int on_host = 1;

  bool operator==(const GroupShape&) const = default;
};

struct WatchedCall {
  const Call& call;
  GroupShape group{};
  int slices = 1;             // of a reduction (ReduceOptions)
  bool is_on_device = false;  // over memory of the ranks' device, or of their hosts
};

class CallWatch {
 public:
  virtual ~CallWatch() = default;
  // Gives the number that waited() is called with.
  virtual int64_t issued(const WatchedCall& call) = 0;
  virtual void waited(int64_t number) = 0;
};

}  // namespace fullshard::comm
