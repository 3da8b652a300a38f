// SPDX-License-Identifier: Apache-2.0
// What a LoRA adapter is: PEFT's LoraConfig, under its names and with its defaults.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace fullshard {

struct LoraOptions {
  int64_t rank = 8;
  double alpha = 8;
  double dropout = 0;
  // Linear layers that get an adapter: each entry is a layer's path, or the end of it after a dot
  // ("q_proj", "mlp.c_proj"); "all-linear" alone means all but the head. Both empty: those that
  // PEFT takes for the model.
  std::vector<std::string> target_modules = {};
  // In their place: a regular expression (ECMAScript) that a whole path matches.
  std::string target_pattern = {};
  // Modules that are trained and saved as a whole: all whose paths end so, with PEFT not only after
  // a dot ("norm" is input_layernorm as well). No adapters inside them.
  std::vector<std::string> modules_to_save = {};
  bool use_rslora = false;  // the part counts alpha / sqrt(rank) instead of alpha / rank
  // Other ranks and alphas by the end of a path, as a regular expression; the first that fits.
  std::vector<std::pair<std::string, int64_t>> rank_pattern = {};
  std::vector<std::pair<std::string, double>> alpha_pattern = {};
  // Names that no module has are passed over, as long as some layer is adapted.
  bool ignores_unmatched = false;

  bool operator==(const LoraOptions&) const = default;
};

}  // namespace fullshard
