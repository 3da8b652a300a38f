// SPDX-License-Identifier: Apache-2.0
// A program's flags that a key of the file may set too.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fullshard/config/document/problem.h"
#include "fullshard/config/schema/settings.h"

namespace fullshard {

class Plan;

struct FlagValue {
  std::string flag{};  // "--lr"; dashes and underscores alike
  std::string value{};
};

// Flags of optimizer and schedule override the file, with a warning that shows it. Any other flag
// that contradicts an explicit value (not "auto") is a problem; all of them are listed. Returns the
// flags that the file has no key for, which go straight into the Plan.
std::vector<FlagValue> apply_flags(config::Settings& settings, std::span<const FlagValue> flags,
                                   Problems& problems);

// Applies those flags by the same rule, after the Plan's keys.
void apply_flags(Plan& plan, std::span<const FlagValue> flags, Problems& problems);

// "zero_stage" for "--zero-stage".
std::string name_of_flag(std::string_view flag);

// A value as that key of Accelerate spells it, "FULL_SHARD" for "full shard" and "1"; nullopt when
// the key does not accept it.
std::optional<std::string> accelerate_choice(std::string_view path, std::string_view value);

// Whether a file or another flag set it. The environment and defaults give way to flags.
bool binds_flags(const Origin& origin);

// A value as a file writes it: a string without quotes, a list as JSON.
std::string text_of(const config::ConfigNode& value);

// "ds.json:3: gradient_clipping: is 1.0, but --clip is 0.5; ...".
Problem contradiction(const Origin& said, std::string_view value, const FlagValue& flag);
// "ds.json:3: optimizer.params.lr: is 0.001, --lr makes it 0.5": a warning.
Problem overridden(const Origin& said, std::string_view value, std::string_view flag,
                   std::string_view by);

// The share that --warmup gives: 0.1 for "0.1"; nullopt for a number of steps.
std::optional<double> share_of_steps(std::string_view text);

// The Trainer's names of schedules, which DeepSpeed's key does not take.
bool is_trainer_schedule(std::string_view name);

}  // namespace fullshard
