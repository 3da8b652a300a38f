// SPDX-License-Identifier: Apache-2.0
#include "fullshard/planning/deepspeed_table.h"

#include <fmt/format.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "fullshard/base/error.h"

namespace fullshard::planning {
namespace {

// Margin that DeepSpeed adds to every figure of the host.
constexpr double kBufferFactor = 1.5;
// Bytes per parameter: 16-bit weights; those with 16-bit gradients and fp32 masters and states;
// masters and states alone, which are offloaded.
constexpr double kHalf = 2, kAll = 18, kStates = 16, kWhole = 4;

int64_t whole_bytes(double bytes) {
  constexpr double kMost = 9.2e18;
  if (bytes > kMost) {
    fail_as(ErrorKind::usage,
            "--deepspeed-table: has {:.3g} bytes, expected at most {:.3g}; give fewer parameters, "
            "GPUs or nodes",
            bytes, kMost);
  }
  return static_cast<int64_t>(bytes);
}

DeepSpeedRow stage_2(double total, double ranks, double gpus_per_node, bool offload) {
  DeepSpeedRow row{.stage = 2, .offload_optimizer = offload};
  if (offload) {
    row.gpu_bytes = whole_bytes(kHalf * total);
    row.cpu_bytes = whole_bytes(total * std::max(kWhole * ranks, kStates) * kBufferFactor);
  } else {
    row.gpu_bytes = whole_bytes(kHalf * total + kAll * total / ranks);
    row.cpu_bytes = whole_bytes(total * kWhole * gpus_per_node * kBufferFactor);
  }
  return row;
}

// Without zero_init every process of a node first holds the whole model in fp32.
double host_bytes(double total, double per_parameter, double nodes, double gpus_per_node,
                  bool zero_init) {
  const double shared = per_parameter / nodes;
  return total * (zero_init ? shared : std::max(kWhole * gpus_per_node, shared)) * kBufferFactor;
}

DeepSpeedRow stage_3(const ModelSize& size, double gpus_per_node, double nodes,
                     const DeepSpeedRow& wanted) {
  const auto total = static_cast<double>(size.total);
  const double largest = kWhole * static_cast<double>(size.largest_layer);
  const double ranks = gpus_per_node * nodes;
  DeepSpeedRow row = wanted;
  row.largest_layer_bytes = whole_bytes(largest);
  if (row.offload_optimizer) {
    const double per_parameter = row.offload_param ? kAll : kStates;
    row.gpu_bytes = whole_bytes(row.offload_param ? largest : largest + kHalf * total / ranks);
    row.cpu_bytes =
        whole_bytes(host_bytes(total, per_parameter, nodes, gpus_per_node, row.zero_init));
  } else {
    row.gpu_bytes = whole_bytes(largest + kAll * total / ranks);
    const double held = row.zero_init ? largest : kWhole * total;
    row.cpu_bytes = whole_bytes(held * gpus_per_node * kBufferFactor);
  }
  return row;
}

double gibibytes(int64_t bytes) { return static_cast<double>(bytes) / (1 << 30); }

}  // namespace

ModelSize size_of(const torch::nn::Module& module) {
  ModelSize size;
  std::set<const void*> seen;
  for (const auto& parameter : module.parameters()) {
    if (seen.insert(parameter.unsafeGetTensorImpl()).second) size.total += parameter.numel();
  }
  for (const auto& part : module.modules()) {
    int64_t own = 0;
    for (const auto& parameter : part->parameters(/*recurse=*/false)) own += parameter.numel();
    size.largest_layer = std::max(size.largest_layer, own);
  }
  return size;
}

std::vector<DeepSpeedRow> deepspeed_table(const ModelSize& size, int gpus_per_node, int nodes) {
  std::vector<DeepSpeedRow> rows;
  const double ranks = static_cast<double>(gpus_per_node) * nodes;
  for (const bool offload : {true, false}) {
    rows.push_back(stage_2(static_cast<double>(size.total), ranks, gpus_per_node, offload));
  }
  for (const bool optimizer : {true, false}) {
    for (const bool param : {true, false}) {
      if (param && !optimizer) continue;
      for (const bool zero_init : {true, false}) {
        rows.push_back(stage_3(size, gpus_per_node, nodes,
                               {.stage = 3,
                                .offload_optimizer = optimizer,
                                .offload_param = param,
                                .zero_init = zero_init}));
      }
    }
  }
  return rows;
}

std::string deepspeed_text(const std::vector<DeepSpeedRow>& rows, const ModelSize& size,
                           int gpus_per_node, int nodes) {
  std::string text = fmt::format(
      "DeepSpeed's estimate of parameters, gradients and optimizer states (no activations)\n"
      "{} node{}, {} GPU{} each; {}M total parameters, {}M in the largest layer\n"
      "stage    per CPU     per GPU  options\n",
      nodes, nodes == 1 ? "" : "s", gpus_per_node, gpus_per_node == 1 ? "" : "s",
      size.total / 1'000'000, size.largest_layer / 1'000'000);
  for (const auto& row : rows) {
    text += fmt::format("{:>5} {:>8.2f} GB {:>8.2f} GB  offload_optimizer={}", row.stage,
                        gibibytes(row.cpu_bytes), gibibytes(row.gpu_bytes),
                        row.offload_optimizer ? "cpu" : "none");
    if (row.stage == 3) {
      text += fmt::format(", offload_param={}, zero_init={}", row.offload_param ? "cpu" : "none",
                          row.zero_init ? 1 : 0);
    }
    text += '\n';
  }
  return text;
}

std::string deepspeed_json(const std::vector<DeepSpeedRow>& rows) {
  nlohmann::ordered_json table = {{"zero2", nlohmann::ordered_json::array()},
                                  {"zero3", nlohmann::ordered_json::array()}};
  for (const auto& row : rows) {
    nlohmann::ordered_json entry = {{"offload_optimizer", row.offload_optimizer}};
    if (row.stage == 3) {
      entry["offload_param"] = row.offload_param;
      entry["zero_init"] = row.zero_init;
    }
    entry["cpu_bytes"] = row.cpu_bytes;
    entry["gpu_bytes"] = row.gpu_bytes;
    if (row.stage == 3) entry["largest_layer_bytes"] = row.largest_layer_bytes;
    table[row.stage == 2 ? "zero2" : "zero3"].push_back(entry);
  }
  return table.dump();
}

}  // namespace fullshard::planning
