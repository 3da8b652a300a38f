// SPDX-License-Identifier: Apache-2.0
// One rung of the ladder: a named change of how a run is configured, and what is known of it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace fullshard::tuning {

enum class Offloaded { nothing, optimizer, parameters, both, to_disk };

struct Rung {
  std::string name{};  // "ZeRO-2 + optimizer offload"; empty: the first, which changes nothing
  int stage = 0;
  bool recompute = false;
  Offloaded offloaded = Offloaded::nothing;
  bool sixteen_bit = false;  // set by the ladder; false: as it is configured
  int64_t micro_batch = 1;
  std::string passed_over{};  // why it cannot be tried here; empty: it can

  // "batch 1", "ZeRO-3", "ZeRO-3, batch 8".
  std::string title() const;
  Rung with_batch(int64_t batch) const;
};

// The plan, before it runs. A plan that cannot be made is not a reason to reject a rung.
struct PlannedRung {
  bool is_known = false;
  bool fits = true;
  int64_t bytes = 0;  // of one rank on its device
  std::string why{};
  std::vector<std::string> changes{};  // when it does not fit, the cheapest first
};

// What a few steps took. `why` says why it did not fit, or could not run at all.
struct MeasuredRung {
  bool fits = false;
  int64_t peak_bytes = 0;
  double tokens_per_s = 0;  // of all ranks together
  std::string why{};
  bool is_over = true;  // false: it was ended before there was a result
};

// All that is known of a rung.
struct RungResult {
  Rung rung{};
  std::string config{};  // a DeepSpeed file; empty for a rung that is passed over
  bool fits = false;     // by measurement, or by plan where it was not measured
  bool is_measured = false;
  std::optional<int64_t> planned_bytes{};
  std::optional<int64_t> peak_bytes{};
  std::optional<double> tokens_per_s{};
  std::string why{};
  std::vector<std::string> changes{};

  // Fits, by measurement.
  bool runs() const { return is_measured && fits; }
};

}  // namespace fullshard::tuning
