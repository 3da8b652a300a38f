// One format to the other, and what the other cannot say.
#pragma once

#include <string>
#include <vector>

#include "fullshard/config/plan.h"

namespace fullshard {

struct Conversion {
  std::string text{};                // a whole file
  std::vector<std::string> notes{};  // "key: what happens to it"; one per setting that is lost
};

// A DeepSpeed JSON. From an Accelerate file of type DEEPSPEED: the same settings; from FSDP: the
// ZeRO stage that shards as much.
Conversion convert_to_deepspeed(const Plan& plan);

// An Accelerate YAML of type FSDP (or NO), in version 1, which can name every strategy.
Conversion convert_to_accelerate(const Plan& plan);

// The settings that were said, as a nested JSON document.
std::string to_json_document(const Settings& settings);

}  // namespace fullshard
