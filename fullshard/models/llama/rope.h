// SPDX-License-Identifier: Apache-2.0
// The frequencies of rotary position embedding, and tables of them that are made when needed.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "fullshard/models/common/config_reader.h"
#include "fullshard/ops/rotary.h"

namespace fullshard::models {

enum class RopeScaling {
  none,
  linear,  // every angle divided by the factor
  llama3,  // only slow ones: those that turn less than once or so in the original context
};

struct RopeConfig {
  double theta = 10000;
  RopeScaling scaling = RopeScaling::none;
  double factor = 1;
  double low_frequency_factor = 1;
  double high_frequency_factor = 4;
  int64_t original_positions = 8192;
};

// Both generations of keys: rope_theta with rope_scaling, and rope_parameters. `max_positions`
// stands in for the original ones where a file does not tell them.
RopeConfig read_rope(ConfigReader& reader, int64_t max_positions);

// Angles per position of each pair, fp32 [head_width / 2] on the CPU.
at::Tensor rope_frequencies(const RopeConfig& config, int64_t head_width);

// Tables of powers of two positions, of which a sequence takes the first ones. None is ever given
// up: work that a GPU repeats by itself may read it again. No tensor is made before the first
// forward, and none is registered: files know nothing of them, and deferred models need nothing.
class RopeTables {
 public:
  RopeTables(const RopeConfig& config, int64_t head_width)
      : config_(config), head_width_(head_width) {}

  // Shared, not referred to: a recomputed layer keeps it until its backward.
  std::shared_ptr<const RotaryTable> table(int64_t sequence_length, at::Device device);

 private:
  RopeConfig config_;
  int64_t head_width_;
  std::vector<RotaryTable> tables_;
};

}  // namespace fullshard::models
