// SPDX-License-Identifier: Apache-2.0
// Parses text into a tree. The content decides between the two grammars, not the file's name.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "fullshard/config/document/document.h"
#include "fullshard/config/document/problem.h"

namespace fullshard::config {

// Bounds on what a configuration may be, so that no file can exhaust memory or the stack.
inline constexpr size_t kMaxConfigBytes = size_t{4} << 20;
inline constexpr int kMaxConfigDepth = 64;
inline constexpr int kMaxConfigNodes = 200'000;

struct ConfigText {
  std::string name;  // for messages
  std::string text;
};

// Reads a whole file, or the only configuration in a folder; where no such path exists, `path` may
// be a JSON text itself, as the Trainer takes it, or in base64, as DeepSpeed does. Otherwise an
// Error of kind usage; `wanted` is what it asks for.
ConfigText read_config_file(const std::string& path,
                            std::string_view wanted = "an Accelerate YAML or DeepSpeed JSON");

bool looks_like_json(std::string_view text);

// nullopt when the text cannot be parsed; then `problems` says why. Duplicate keys are problems
// too, the first one counts. `name` is for messages.
std::optional<ConfigNode> read_config(std::string_view text, const std::string& name,
                                      Problems& problems);

// JSON with what hjson, DeepSpeed's reader, takes: # // and /* */ comments, commas before a closing
// bracket or none at the end of a line, single quotes, keys and strings without quotes. Such a
// string goes to the end of its line: where that would swallow something it is refused. Multi-line
// strings are not supported.
std::optional<ConfigNode> read_json(std::string_view text, const std::string& name,
                                    Problems& problems);

// YAML 1.1 as PyYAML's safe_load reads it: one document, anchors and merge keys, no tags.
std::optional<ConfigNode> read_yaml(std::string_view text, const std::string& name,
                                    Problems& problems);

}  // namespace fullshard::config
