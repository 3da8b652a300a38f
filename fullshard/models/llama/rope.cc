// SPDX-License-Identifier: Apache-2.0
#include "fullshard/models/llama/rope.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/where.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <bit>
#include <nlohmann/json.hpp>
#include <numbers>
#include <optional>
#include <string>

namespace fullshard::models {
namespace {

std::optional<RopeScaling> scaling_named(const std::string& name) {
  if (name == "default") return RopeScaling::none;
  if (name == "linear") return RopeScaling::linear;
  if (name == "llama3") return RopeScaling::llama3;
  return std::nullopt;
}

double read_positive(ConfigReader& reader, std::string_view key) {
  const double value = reader.number(key, 0);
  if (value > 0) return value;
  reader.refuse(key, "expected a number above 0");
  return 1;
}

// Below 1 frequencies would grow with their number, and at 0 be infinite.
double read_theta(ConfigReader& reader, double otherwise) {
  return reader.at_least(1, "rope_theta", otherwise);
}

void read_scaling(ConfigReader& reader, int64_t max_positions, RopeConfig& result) {
  const auto key = reader.one_of({"rope_type", "type"});
  reader.harmless({"rope_type", "type"});
  const auto scaling = scaling_named(reader.text(key, "default"));
  if (!scaling) {
    // What else the section holds belongs to that kind.
    return reader.refuse(key, "\"default\", \"linear\" and \"llama3\" are supported");
  }
  result.scaling = *scaling;
  if (*scaling != RopeScaling::none) result.factor = read_positive(reader, "factor");
  if (*scaling == RopeScaling::llama3) {
    result.low_frequency_factor = read_positive(reader, "low_freq_factor");
    result.high_frequency_factor = read_positive(reader, "high_freq_factor");
    result.original_positions = reader.positive("original_max_position_embeddings", max_positions);
    if (result.high_frequency_factor <= result.low_frequency_factor) {
      reader.refuse("high_freq_factor", "expected more than low_freq_factor");
    }
  }
  reader.supports_only("partial_rotary_factor", 1.0);
  reader.refuse_unread();
}

at::Tensor scaled_for_llama3(const at::Tensor& frequencies, const RopeConfig& config) {
  const auto context = static_cast<double>(config.original_positions);
  const double low = config.low_frequency_factor;
  const double high = config.high_frequency_factor;
  const auto wavelengths = 2 * std::numbers::pi / frequencies;
  const auto slowed = frequencies / config.factor;
  const auto share = (context / wavelengths - low) / (high - low);
  const auto between = (1 - share) * frequencies / config.factor + share * frequencies;
  const auto is_slow = wavelengths > context / low;
  const auto is_fast = wavelengths < context / high;
  return at::where(is_slow, slowed, at::where(is_fast, frequencies, between));
}

}  // namespace

RopeConfig read_rope(ConfigReader& reader, int64_t max_positions) {
  RopeConfig result;
  reader.supports_only("partial_rotary_factor", 1.0);
  if (reader.has("rope_parameters")) {
    auto section = reader.section("rope_parameters");
    result.theta = read_theta(section, read_theta(reader, result.theta));
    if (reader.has("rope_scaling")) {
      reader.harmless({"rope_scaling"});
      reader.refuse("rope_scaling", "rope_parameters stands in its place; keep one of them");
    }
    read_scaling(section, max_positions, result);
  } else {
    result.theta = read_theta(reader, result.theta);
    auto section = reader.section("rope_scaling");
    read_scaling(section, max_positions, result);
  }
  return result;
}

at::Tensor rope_frequencies(const RopeConfig& config, int64_t head_width) {
  const auto exponents = at::arange(0, head_width, 2, at::TensorOptions().dtype(at::kFloat)) /
                         static_cast<double>(head_width);
  const auto frequencies = 1.0 / at::pow(at::Scalar(config.theta), exponents);
  switch (config.scaling) {
    case RopeScaling::none:
      return frequencies;
    case RopeScaling::linear:
      return frequencies / config.factor;
    case RopeScaling::llama3:
      break;
  }
  return scaled_for_llama3(frequencies, config);
}

std::shared_ptr<const RotaryTable> RopeTables::table(int64_t sequence_length, at::Device device) {
  const auto found = std::ranges::find_if(tables_, [&](const RotaryTable& table) {
    return table.cos.device() == device && table.cos.size(0) >= sequence_length;
  });
  const bool is_known = found != tables_.end();
  if (!is_known) {
    // A table of an evaluation in inference mode must serve training too.
    const c10::InferenceMode no_inference(false);
    const auto frequencies = rope_frequencies(config_, head_width_).to(device);
    const auto length = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(sequence_length)));
    tables_.push_back(make_rotary_table(frequencies, length));
  }
  const RotaryTable& whole = is_known ? *found : tables_.back();
  return std::make_shared<RotaryTable>(RotaryTable{whole.cos.narrow(0, 0, sequence_length),
                                                   whole.sin.narrow(0, 0, sequence_length)});
}

}  // namespace fullshard::models
