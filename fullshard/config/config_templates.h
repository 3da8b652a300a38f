// SPDX-License-Identifier: Apache-2.0
// Ready-made configuration files: those of examples/configs, which the build embeds in the program.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace fullshard::config {

struct ConfigTemplate {
  std::string_view name;  // "zero3-offload"
  std::string_view file;  // "zero3-offload.json"
  std::string_view text;

  std::string_view summary() const;  // its first comment
  // Without comments, for programs that read plain JSON or YAML only.
  std::string plain_text() const;
};

std::span<const ConfigTemplate> config_templates();

// Finds by name, with or without the file's extension; an Error of kind usage suggests the nearest.
const ConfigTemplate& find_config_template(std::string_view name);

}  // namespace fullshard::config
