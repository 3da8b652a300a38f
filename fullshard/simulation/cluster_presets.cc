// SPDX-License-Identifier: Apache-2.0
// Known machines. From data sheets: memory, its bandwidth, links (one direction) and bus. From
// NCCL's own tuning model: latencies of a hop over NVLink and between hosts. From measurements of
// five clusters (Sinha and others 2022, 8 % between the slow and the fast GPUs of one): the spread.
// Fitted, the two constants of a machine: what products and attention sustain (docs/planning.md,
// "What a cluster would do").
#include <algorithm>
#include <utility>

#include "fullshard/simulation/cluster.h"

namespace fullshard::simulation {
namespace {

using NamedText = std::pair<std::string_view, std::string_view>;

constexpr NamedText kPresets[] = {
    {"h100", R"(gpu:
  memory: 80GB
  memory_bandwidth: 3.35TB/s
  bf16_tflops: 640
  attention_tflops: 420
  fp8_tflops: 1100
  spread: 0.015
gpus_per_host: 8
inside: {bandwidth: 450GB/s, latency: 3.4us}
between: {bandwidth: 400Gb/s, latency: 14us}
bus: 55GB/s
disk: 6GB/s
)"},
    {"h200", R"(gpu:
  memory: 141GB
  memory_bandwidth: 4.8TB/s
  bf16_tflops: 640
  attention_tflops: 420
  fp8_tflops: 1100
  spread: 0.015
gpus_per_host: 8
inside: {bandwidth: 450GB/s, latency: 3.4us}
between: {bandwidth: 400Gb/s, latency: 14us}
bus: 55GB/s
disk: 6GB/s
)"},
    {"a100-80", R"(gpu:
  memory: 80GB
  memory_bandwidth: 2.04TB/s
  bf16_tflops: 215
  attention_tflops: 120
  spread: 0.015
gpus_per_host: 8
inside: {bandwidth: 300GB/s, latency: 3.4us}
between: {bandwidth: 200Gb/s, latency: 14us}
bus: 25GB/s
disk: 3GB/s
)"},
    {"a100-40", R"(gpu:
  memory: 40GB
  memory_bandwidth: 1.56TB/s
  bf16_tflops: 215
  attention_tflops: 120
  spread: 0.015
gpus_per_host: 8
inside: {bandwidth: 300GB/s, latency: 3.4us}
between: {bandwidth: 200Gb/s, latency: 14us}
bus: 25GB/s
disk: 3GB/s
)"},
};

}  // namespace

std::string_view preset_text(std::string_view name) {
  for (const auto& [known, text] : kPresets) {
    if (known == name) return text;
  }
  return {};
}

}  // namespace fullshard::simulation

namespace fullshard {

std::vector<std::string> Cluster::presets() {
  std::vector<std::string> names;
  for (const auto& [name, text] : simulation::kPresets) names.emplace_back(name);
  return names;
}

}  // namespace fullshard
