// SPDX-License-Identifier: Apache-2.0
// The effective configuration: each key of the file's family with its value, where the value comes
// from, and what it does.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fullshard/config/plan.h"

namespace fullshard::config {

struct ExplainedKey {
  std::string path{};
  ConfigNode value{};
  std::string origin{};  // as Origin::text()
  std::string effect{};
  bool is_worth_a_line = false;  // set by the user, derived, or plainly honoured
};

struct Explanation {
  std::vector<ExplainedKey> keys{};

  // A table for people: without the defaults of keys that do nothing here.
  std::string text() const;
  // Only what was set or derived: the head of a run.
  std::string short_text() const;
  // {"key": {"value": ..., "origin": ..., "effect": ...}, ...}
  std::string json() const;
};

// `ranks` is for memory per rank; absent: what the plan says, or 1.
Explanation explain(const Plan& plan, std::optional<int64_t> ranks = {});

}  // namespace fullshard::config
