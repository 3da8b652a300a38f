// A program's flags that say what a key of the file may say too.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "fullshard/config/problem.h"
#include "fullshard/config/settings.h"

namespace fullshard {

class Plan;

struct FlagValue {
  std::string flag{};  // "--lr"; dashes and underscores alike
  std::string value{};
};

// Flags of optimizer and schedule override the file, with a warning that shows it. Any other that
// contradicts an explicit value (not "auto") is a problem; all of them are listed. A flag that the
// file's family has no key for is left to the program.
void apply_flags(Settings& settings, std::span<const FlagValue> flags, Problems& problems);

// The same flags where the family has no key: straight into the Plan, after its keys.
void apply_flags(Plan& plan, std::span<const FlagValue> flags, Problems& problems);

// The Trainer's names of schedules, which DeepSpeed's key does not take.
bool is_trainer_schedule(std::string_view name);

}  // namespace fullshard
