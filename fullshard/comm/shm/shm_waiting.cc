// SPDX-License-Identifier: Apache-2.0
#include "fullshard/comm/shm/shm_waiting.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

#include "fullshard/comm/awake_time.h"
#include "fullshard/comm/shm/shm_control.h"

namespace fullshard::comm {
namespace {

using Clock = std::chrono::steady_clock;

void pause_core() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

uint32_t* word_of(std::atomic<uint32_t>& value) { return reinterpret_cast<uint32_t*>(&value); }

// Returns on a ring, after `longest`, or for no reason: the caller looks at its condition again.
void sleep_unless_rung(Doorbell& bell, uint32_t seen, std::chrono::milliseconds longest) {
  timespec time = {};
  time.tv_sec = longest.count() / 1000;
  time.tv_nsec = longest.count() % 1000 * 1'000'000;
  ::syscall(SYS_futex, word_of(bell.rings), FUTEX_WAIT, seen, &time, nullptr, 0);
}

bool nap(Doorbell& bell, std::chrono::milliseconds longest, Condition& condition) {
  // Counting in before the last look pairs with ring(), which looks at the count after its store:
  // one of both sees the other.
  bell.sleepers.fetch_add(1);
  const uint32_t seen = bell.rings.load();
  bool is_met = false;
  try {
    is_met = condition.is_met();
  } catch (...) {
    bell.sleepers.fetch_sub(1);
    throw;
  }
  if (!is_met) sleep_unless_rung(bell, seen, longest);
  bell.sleepers.fetch_sub(1);
  return is_met || condition.is_met();
}

}  // namespace

void ring(Doorbell& bell) {
  if (bell.sleepers.load() == 0) return;
  bell.rings.fetch_add(1);
  ::syscall(SYS_futex, word_of(bell.rings), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

Patience Patience::for_ranks(int num_ranks) {
  cpu_set_t cores;
  const bool known = ::sched_getaffinity(0, sizeof(cores), &cores) == 0;
  const int num_cores = known ? CPU_COUNT(&cores) : 1;
  Patience patience;
  patience.spin = std::chrono::microseconds(num_ranks <= num_cores ? 20 : 0);
  return patience;
}

void wait_at(Doorbell& bell, const Patience& patience, Condition& condition) {
  if (condition.is_met()) return;
  const auto start = Clock::now();
  while (Clock::now() - start < patience.spin) {
    for (int i = 0; i < 8; ++i) {
      pause_core();
      if (condition.is_met()) return;
    }
  }
  auto looked = start;
  AwakeTime waited(start);
  while (true) {
    while (condition.help()) {
      if (condition.is_met()) return;
    }
    if (nap(bell, patience.nap, condition)) return;
    if (Clock::now() - looked < patience.nap / 2) continue;
    looked = Clock::now();
    condition.look_around(waited.passed(looked));
  }
}

}  // namespace fullshard::comm
