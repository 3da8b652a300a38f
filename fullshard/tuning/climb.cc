// SPDX-License-Identifier: Apache-2.0
#include "fullshard/tuning/climb.h"

#include <algorithm>

#include "fullshard/base/error.h"
#include "fullshard/tuning/batch_search.h"

namespace fullshard::tuning {
namespace {

constexpr const char* kFitsWithout = "not measured: not needed to fit";
constexpr const char* kNoTime = "not measured: the budget is spent";

// Offload costs speed and 16 bit changes numbers: from the fast end they are tried only if they are
// needed.
bool is_last_resort(const Rung& rung) {
  return rung.offloaded != Offloaded::nothing || rung.sixteen_bit;
}

class Climber {
 public:
  Climber(const ClimbOptions& options, Trials& trials) : options_(options), trials_(trials) {}

  Climbed run() {
    climb_with_first_batch();
    if (best_speed() && options_.batches.size() > 1) {
      grow(options_.rungs[ladder_index_of(best_rung())]);
      try_others();
    }
    if (best_speed()) try_without_recomputation();
    climbed_.winner = fastest_of(climbed_.results);
    return std::move(climbed_);
  }

 private:
  size_t size() const { return options_.rungs.size(); }

  void climb_with_first_batch() {
    for (size_t step = 0; step < size(); ++step) {
      const Rung& rung = options_.rungs[options_.from_frugal ? size() - 1 - step : step];
      const bool is_needed = options_.from_frugal || !is_last_resort(rung) || !best_speed();
      attempt(rung, is_needed ? "" : kFitsWithout);
    }
  }

  // Less offload and a lower stage first; then rungs that take larger batches. Either direction
  // ends at the second in a row that is not faster: the first may be one slow measurement.
  void try_others() {
    constexpr int kMostSlower = 2;
    const size_t start = ladder_index_of(best_rung());
    int slower = 0;
    for (size_t index = start; index-- > 0 && slower < kMostSlower;) {
      if (fits_at_first_batch(index)) slower = is_faster_grown(index) ? 0 : slower + 1;
    }
    slower = 0;
    for (size_t index = start + 1; index < size() && slower < kMostSlower; ++index) {
      const Rung& rung = options_.rungs[index];
      const bool is_closed = !options_.from_frugal && (rung.sixteen_bit || is_on_disk(rung));
      if (is_closed || !fits_at_first_batch(index)) continue;
      if (takes_larger_batch(index)) slower = is_faster_grown(index) ? 0 : slower + 1;
    }
  }

  // The ladder recomputes before it shards; sharding may have made that unnecessary.
  void try_without_recomputation() {
    const Rung& first = options_.rungs.front();
    Rung rung = best_rung().with_batch(batch_at(0));
    const bool is_first = rung.stage == first.stage && !is_last_resort(rung);
    if (!rung.recompute || first.recompute || is_first) return;
    rung.recompute = false;
    rung.name += " without recomputation";
    if (trials_.plan(rung).fits) grow(rung);
  }

  static bool is_on_disk(const Rung& rung) { return rung.offloaded == Offloaded::to_disk; }

  bool fits_at_first_batch(size_t index) const {
    const RungResult* result = find(options_.rungs[index]);
    return result != nullptr && result->fits;
  }

  bool takes_larger_batch(size_t index) {
    const auto planned = largest_planned(options_.rungs[index]);
    return planned && batch_at(*planned) > best_rung().micro_batch;
  }

  bool is_faster_grown(size_t index) {
    const auto before = best_speed();
    grow(options_.rungs[index]);
    return best_speed() > before;
  }

  // The largest batch by plan; nothing if no plan can be made.
  std::optional<int64_t> largest_planned(const Rung& rung) {
    bool is_known = true;
    const auto fits = [&](int64_t index) {
      const PlannedRung planned = trials_.plan(rung.with_batch(batch_at(index)));
      is_known = is_known && planned.is_known;
      return planned.is_known && planned.fits;
    };
    const int64_t largest = largest_fitting(num_batches(), fits);
    return is_known ? std::optional(largest) : std::nullopt;
  }

  // Measures the largest batch that fits by plan, or else the largest that does fit.
  void grow(const Rung& rung) {
    const RungResult* first = find(rung);
    const auto speed = first != nullptr ? first->tokens_per_s : std::nullopt;
    const auto fits = [&](int64_t index) {
      const Rung larger = rung.with_batch(batch_at(index));
      if (!trials_.has_time(larger, speed)) return climbed_.is_cut_short = true, false;
      return attempt(larger, "").runs();
    };
    const auto planned = largest_planned(rung);
    if (!planned) {
      if (attempt(rung, "").runs()) largest_fitting(num_batches(), fits);
      return;
    }
    int64_t index = *planned;
    if (index == 0) attempt(rung, "");
    for (; index > 0 && !trials_.has_time(rung.with_batch(batch_at(index)), speed); index /= 2) {
      climbed_.is_cut_short = true;
    }
    if (index > 0 && !fits(index)) halve_the_gap(0, index, fits);
  }

  RungResult attempt(const Rung& rung, const char* why_not_measured) {
    if (const RungResult* known = find(rung)) return *known;
    RungResult result = looked_at(rung, why_not_measured);
    trials_.note(result);
    climbed_.results.push_back(result);
    return result;
  }

  RungResult looked_at(const Rung& rung, const std::string& why_not_measured) {
    RungResult result{.rung = rung, .why = rung.passed_over};
    if (!result.why.empty()) return result;
    try {
      result.config = trials_.config(rung);
    } catch (const Error& problem) {
      result.why = problem.what();
      return result;
    }
    const PlannedRung planned = trials_.plan(rung);
    result.why = planned.why;
    if (planned.is_known) {
      result.planned_bytes = planned.bytes;
      result.fits = planned.fits;
      result.changes = planned.changes;
      if (!planned.fits) return result;
    }
    if (!why_not_measured.empty()) {
      result.why = why_not_measured;
      return result;
    }
    if (!trials_.has_time(rung, best_speed())) {
      result.why = kNoTime;
      climbed_.is_cut_short = true;
      return result;
    }
    const MeasuredRung measured = trials_.measure(rung, result.config);
    result.is_measured = measured.is_over;
    result.fits = measured.fits;
    result.why = measured.why;
    climbed_.is_cut_short = climbed_.is_cut_short || !measured.is_over;
    if (measured.peak_bytes > 0) result.peak_bytes = measured.peak_bytes;
    if (measured.fits) result.tokens_per_s = measured.tokens_per_s;
    return result;
  }

  const Rung& best_rung() const { return climbed_.results[*fastest_of(climbed_.results)].rung; }

  std::optional<double> best_speed() const {
    const auto best = fastest_of(climbed_.results);
    return best ? climbed_.results[*best].tokens_per_s : std::nullopt;
  }

  const RungResult* find(const Rung& rung) const {
    const auto is_it = [&](const RungResult& result) {
      return result.rung.title() == rung.title();
    };
    const auto found = std::find_if(climbed_.results.begin(), climbed_.results.end(), is_it);
    return found == climbed_.results.end() ? nullptr : &*found;
  }

  size_t ladder_index_of(const Rung& rung) const {
    const auto is_it = [&](const Rung& other) { return other.name == rung.name; };
    const auto found = std::find_if(options_.rungs.begin(), options_.rungs.end(), is_it);
    return static_cast<size_t>(found - options_.rungs.begin());
  }

  int64_t num_batches() const { return static_cast<int64_t>(options_.batches.size()); }
  int64_t batch_at(int64_t index) const { return options_.batches[static_cast<size_t>(index)]; }

  const ClimbOptions& options_;
  Trials& trials_;
  Climbed climbed_;
};

}  // namespace

std::optional<size_t> fastest_of(const std::vector<RungResult>& results) {
  std::optional<size_t> best;
  for (size_t index = 0; index < results.size(); ++index) {
    if (!results[index].runs()) continue;
    if (!best || results[index].tokens_per_s > results[*best].tokens_per_s) best = index;
  }
  return best;
}

Climbed climb(const ClimbOptions& options, Trials& trials) {
  return Climber(options, trials).run();
}

}  // namespace fullshard::tuning
