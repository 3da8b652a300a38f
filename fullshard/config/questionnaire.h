// SPDX-License-Identifier: Apache-2.0
// `fullshard config`: asks questions and writes a file that Accelerate accepts too.
#pragma once

#include <iosfwd>
#include <string>

namespace fullshard::config {

// The YAML text. An empty answer, or the end of the input, takes the default in brackets; an answer
// that is not accepted is asked again, and is an error when the input ends with it.
std::string ask_for_config(std::istream& answers, std::ostream& questions, bool has_gpus);

// Where `fullshard config` writes, and where launch and train look when no file is named:
// $XDG_CONFIG_HOME or ~/.config, then fullshard/default_config.yaml. Empty without a home.
std::string default_config_path();

// Where `accelerate config` writes: accelerate/default_config.yaml in HF_HOME, else in
// XDG_CACHE_HOME/huggingface or ~/.cache/huggingface, or default_config.json where there is no such
// file. Empty where neither is there.
std::string accelerate_default_config();

}  // namespace fullshard::config
