// SPDX-License-Identifier: Apache-2.0
// Converts one format to the other and lists what the other cannot express.
#pragma once

#include <string>
#include <vector>

#include "fullshard/config/plan.h"

namespace fullshard::config {

struct Conversion {
  std::string text{};                // a whole file
  std::vector<std::string> notes{};  // "key: what happens to it"; one per setting that is lost
};

// A DeepSpeed JSON. From an Accelerate file of type DEEPSPEED: the same settings; from FSDP: the
// ZeRO stage that shards as much.
Conversion convert_to_deepspeed(const Plan& plan);

// An Accelerate YAML of type FSDP (or MULTI_GPU), in version 1, which can name every strategy; in
// version 2 where a copy is sharded over a number of ranks that version 1 has no key for. It always
// says num_processes, without which `accelerate launch` refuses a file.
Conversion convert_to_accelerate(const Plan& plan);

// An Accelerate YAML of type DEEPSPEED that names the DeepSpeed file, which keeps all its settings;
// `ranks` absent: one.
std::string accelerate_text_naming(const std::string& deepspeed_file, std::optional<int64_t> ranks,
                                   bool on_cpu);

// Whether the entry was set to something other than its default, so that a file without it means
// something else.
bool is_missed(const Settings::Entry& entry);

// Ranks that one copy is sharded over, where the Plan determines it: a factor, or the ranks of one
// machine under a hybrid strategy.
std::optional<int64_t> shards_of_copy(const Plan& plan);

// The explicit settings as a nested JSON document.
std::string to_json_document(const Settings& settings);

}  // namespace fullshard::config
