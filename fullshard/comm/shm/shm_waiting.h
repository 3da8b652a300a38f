// SPDX-License-Identifier: Apache-2.0
// How a rank waits: it spins while an answer is likely within microseconds, then sleeps until a
// publisher rings. Publishing costs a system call only when somebody sleeps. Nobody yields: on a
// busy machine sched_yield gives away a whole time slice, and a woken sleeper comes back at once.
#pragma once

#include <chrono>

namespace fullshard::comm {

struct Doorbell;

// Wakes whoever sleeps at the bell. Call it after the (sequentially consistent) store that made a
// condition true.
void ring(Doorbell& bell);

struct Patience {
  std::chrono::microseconds spin{0};   // burn the core
  std::chrono::milliseconds nap{100};  // longest sleep before looking around

  // Spinning only helps when every rank has a core to itself.
  static Patience for_ranks(int num_ranks);
};

// What is waited for.
class Condition {
 public:
  virtual ~Condition() = default;
  virtual bool is_met() = 0;
  // Other work that may be done meanwhile; true when there was some.
  virtual bool help() { return false; }
  // Between naps. Ends a hopeless wait by throwing.
  virtual void look_around(std::chrono::milliseconds waited) = 0;
};

void wait_at(Doorbell& bell, const Patience& patience, Condition& condition);

}  // namespace fullshard::comm
