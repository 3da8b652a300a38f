// SPDX-License-Identifier: Apache-2.0
// A model of memory and speed in place of plans and runs.
#pragma once

#include <fmt/format.h>

#include <functional>
#include <string>
#include <vector>

#include "fullshard/tuning/climb.h"

namespace fullshard::tuning {

class FakeTrials : public Trials {
 public:
  std::function<int64_t(const Rung&)> planned = [](const Rung&) { return 1; };
  std::function<int64_t(const Rung&)> held = [](const Rung&) { return 1; };
  std::function<double(const Rung&)> speed = [](const Rung&) { return 1.0; };
  int64_t limit = 100;
  bool plans = true;
  int num_measurements_left = 1000;           // the budget
  std::function<void(const Rung&)> before{};  // each measurement

  std::vector<std::string> measured{};
  std::vector<std::string> noted{};

  std::string config(const Rung& rung) override {
    return fmt::format(R"({{"rung": "{}"}})", rung.title());
  }
  PlannedRung plan(const Rung& rung) override {
    if (!plans) return {.why = "not planned: it cannot be"};
    const int64_t bytes = planned(rung);
    const bool fits = bytes <= limit;
    return {.is_known = true,
            .fits = fits,
            .bytes = bytes,
            .why = fits ? "" : fmt::format("does not fit: {} bytes", bytes),
            .changes = fits ? std::vector<std::string>{} : std::vector<std::string>{"more ranks"}};
  }
  MeasuredRung measure(const Rung& rung, const std::string&) override {
    if (before) before(rung);
    measured.push_back(rung.title());
    --num_measurements_left;
    const int64_t bytes = held(rung);
    if (bytes > limit) return {.why = "out of memory"};
    return {.fits = true, .peak_bytes = bytes, .tokens_per_s = speed(rung)};
  }
  bool has_time(const Rung&, std::optional<double>) override { return num_measurements_left > 0; }
  void note(const RungResult& result) override { noted.push_back(result.rung.title()); }
};

}  // namespace fullshard::tuning
