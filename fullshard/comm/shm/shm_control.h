// SPDX-License-Identifier: Apache-2.0
// What lies at the beginning of the common memory and in each group's control block: plain structs
// of lock-free atomics that are valid when all bytes are zero. Processes of one build share them.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "fullshard/comm/call_terms.h"

namespace fullshard::comm {

static_assert(std::atomic<uint64_t>::is_always_lock_free);
static_assert(std::atomic<uint32_t>::is_always_lock_free);

// Text that one rank writes and others may read at any time: a torn text is possible, a race is
// not.
template <size_t kBytes>
class SharedText {
 public:
  void store(std::string_view text) {
    std::array<char, kBytes> padded{};
    std::copy_n(text.data(), std::min(text.size(), kBytes - 1), padded.data());
    for (size_t i = 0; i < kBytes / 8; ++i) {
      uint64_t word;
      std::memcpy(&word, padded.data() + 8 * i, 8);
      words_[i].store(word, std::memory_order_relaxed);
    }
  }
  std::string load() const {
    std::array<char, kBytes> padded{};
    for (size_t i = 0; i < kBytes / 8; ++i) {
      const uint64_t word = words_[i].load(std::memory_order_relaxed);
      std::memcpy(padded.data() + 8 * i, &word, 8);
    }
    return std::string(padded.data(), strnlen(padded.data(), kBytes - 1));
  }

 private:
  std::array<std::atomic<uint64_t>, kBytes / 8> words_;
};

// Where a rank that has nothing to do sleeps; see shm_waiting.h.
struct alignas(64) Doorbell {
  std::atomic<uint32_t> rings;
  std::atomic<uint32_t> sleepers;
};

enum class Presence : uint32_t { present, ended, failed };
enum class CallProgress : uint32_t { none, issued, finished };

// What a rank says about itself, for the others' messages should it go missing.
struct alignas(64) Note {
  std::atomic<Presence> presence;
  std::atomic<CallProgress> progress;
  std::atomic<int32_t> waits_for;  // rank + 1; 0: does not wait
  std::atomic<int32_t> beyond;     // calls under way that wait for other hosts
  std::atomic<uint64_t> sequence;
  SharedText<32> what;
  SharedText<32> group;
  SharedText<64> unit;
};

enum class Cause : uint32_t { none, died, ended, failed, late, disagreement, outside };

// Who is to blame, settled once by the first rank that knows, so that no rank blames another that
// only failed in consequence.
struct alignas(64) Verdict {
  enum State : uint32_t { open, in_writing, settled };
  std::atomic<uint32_t> state;
  std::atomic<Cause> cause;
  std::atomic<int32_t> rank;
  std::atomic<uint64_t> milliseconds;  // late: how long it was waited for
  SharedText<2048> text;  // failed: the reason; disagreement: the whole message; outside: a Missing
};

// A piece of common memory that the first rank to ask claims and the others find.
struct Claim {
  std::atomic<uint64_t> offset;
  std::atomic<uint64_t> bytes;
  std::atomic<uint64_t> released;  // by how many ranks
};

inline constexpr int kMaxRanks = 256;
inline constexpr int kMaxBackends = 4096;

struct DomainBlock {
  std::atomic<uint64_t> end;  // of the common memory in use
  Verdict verdict;
  std::array<Doorbell, kMaxRanks> doorbells;
  std::array<Note, kMaxRanks> notes;
  std::array<Claim, kMaxBackends> backends;
};

// A byte that every rank can find: in rank `region`'s arena, or in the common memory.
struct Place {
  int32_t region = -1;
  int64_t offset = 0;
  int64_t row_stride = 0;  // bytes from one row to the next
};

inline constexpr int kNumTickets = 64;
inline constexpr int64_t kInlineBytes = 4096;

// One rank's part of one collective. The counters hold the newest ticket that got so far; the rest
// belongs to the owner until `issued`, and to the readers until all of them have drained.
struct alignas(64) CallSlot {
  std::atomic<uint64_t> issued;
  std::atomic<uint64_t> reduced;
  std::atomic<uint64_t> drained;
  CallTerms terms;
  Place input;
  Place output;  // what peers may read, or write when it is the whole output
  int32_t output_is_whole = 0;
};

struct alignas(64) Counter {
  std::atomic<uint64_t> value;
};

}  // namespace fullshard::comm
