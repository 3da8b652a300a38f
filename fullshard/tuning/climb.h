// SPDX-License-Identifier: Apache-2.0
// How the ladder is climbed: which rungs are planned, which are measured, which one wins.
// Independent of processes and files; docs/planning.md, "Let it choose".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fullshard/tuning/rung.h"

namespace fullshard::tuning {

// What the climb calls, on one thread, one call after the other.
class Trials {
 public:
  virtual ~Trials() = default;

  // The file of the rung. An Error (kind usage) says why there is none.
  virtual std::string config(const Rung& rung) = 0;
  virtual PlannedRung plan(const Rung& rung) = 0;
  virtual MeasuredRung measure(const Rung& rung, const std::string& config) = 0;
  // Whether its steps would end within the budget, at a speed that another rung had.
  virtual bool has_time(const Rung& rung, std::optional<double> tokens_per_s) = 0;
  // Called with the complete result of each rung.
  virtual void note(const RungResult& result) = 0;
};

struct ClimbOptions {
  std::vector<Rung> rungs{};  // the fastest first
  bool from_frugal = false;   // begin at the other end
  // Ascending, the rungs' own first. With only one there is no search.
  std::vector<int64_t> batches{1};
};

struct Climbed {
  std::vector<RungResult> results{};  // in the order in which they became known
  std::optional<size_t> winner{};     // of them; none: nothing fits
  bool is_cut_short = false;          // the budget ended before the climb did
};

// The fastest that was measured and fits; of equals the first.
std::optional<size_t> fastest_of(const std::vector<RungResult>& results);

Climbed climb(const ClimbOptions& options, Trials& trials);

}  // namespace fullshard::tuning
