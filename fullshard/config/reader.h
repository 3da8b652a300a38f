// Text to tree. Which of the two grammars a text has is told by its content, not by its name.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "fullshard/config/document.h"
#include "fullshard/config/problem.h"

namespace fullshard {

// Bounds on what a configuration may be, so that no file can exhaust memory or the stack.
inline constexpr size_t kMaxConfigBytes = size_t{4} << 20;
inline constexpr int kMaxConfigDepth = 64;
inline constexpr int kMaxConfigNodes = 200'000;

// The whole file; an Error of kind input when it cannot be read.
std::string read_config_file(const std::string& path);

bool looks_like_json(std::string_view text);

// Nothing when the text has no tree; then `problems` says why. Duplicate keys are problems too, the
// first one counts. `name` is for messages.
std::optional<ConfigNode> read_config(std::string_view text, const std::string& name,
                                      Problems& problems);

// JSON with what people put into DeepSpeed's files: # // and /* */ comments, commas before a
// closing bracket.
std::optional<ConfigNode> read_json(std::string_view text, const std::string& name,
                                    Problems& problems);

// YAML 1.1 as PyYAML's safe_load reads it: one document, anchors and merge keys, no tags.
std::optional<ConfigNode> read_yaml(std::string_view text, const std::string& name,
                                    Problems& problems);

}  // namespace fullshard
