// SPDX-License-Identifier: Apache-2.0
#include "fullshard/worker/checkpoint_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "fullshard/base/bytes.h"
#include "fullshard/base/printable.h"
#include "fullshard/formats/element_type.h"

namespace fullshard::worker {
namespace {

using nlohmann::json;

std::string dtype_name(at::ScalarType dtype) {
  const ElementType* type = find_element_type(dtype);
  return type == nullptr ? c10::toString(dtype) : std::string(type->name);
}

int64_t bytes_of(const StoredTensor& tensor) {
  return tensor.numel() * static_cast<int64_t>(c10::elementSize(tensor.dtype));
}

struct Sum {
  int64_t tensors = 0;
  int64_t numel = 0;
  int64_t bytes = 0;
};

Sum sum_of(const std::vector<StoredTensor>& tensors) {
  Sum sum;
  for (const auto& tensor : tensors) {
    ++sum.tensors;
    sum.numel += tensor.numel();
    sum.bytes += bytes_of(tensor);
  }
  return sum;
}

std::string sum_line(const std::string& part, const Sum& sum) {
  return fmt::format("{:<12} {:>7} tensors  {:>9} elements  {:>10}\n", part, sum.tensors,
                     format_count(sum.numel), format_bytes(sum.bytes));
}

std::string tensor_lines(const stored::AnyCheckpoint& checkpoint) {
  size_t width = 6;
  for (const auto& tensor : checkpoint.weights->tensors()) {
    width = std::max(width, base::printable(tensor.name).size());
  }
  std::string text =
      fmt::format("\n{:<{}}  {:<5}  {:>10}  shape\n", "tensor", width, "dtype", "bytes");
  for (const auto& tensor : checkpoint.weights->tensors()) {
    const auto second = checkpoint.tied.find(tensor.name);
    text += fmt::format(
        "{:<{}}  {:<5}  {:>10}  {}{}\n", base::printable(tensor.name), width,
        dtype_name(tensor.dtype), format_bytes(bytes_of(tensor)), format_shape(tensor.shape),
        second == checkpoint.tied.end() ? "" : "  tied to " + base::printable(second->second));
  }
  return text;
}

json tensors_json(const std::vector<StoredTensor>& tensors) {
  json all = json::array();
  for (const auto& tensor : tensors) {
    all.push_back({{"name", tensor.name},
                   {"dtype", dtype_name(tensor.dtype)},
                   {"shape", tensor.shape},
                   {"file", tensor.file}});
  }
  return all;
}

}  // namespace

std::string checkpoint_table(const stored::AnyCheckpoint& checkpoint, bool lists_tensors) {
  std::string text = fmt::format("{}: {}\n", base::printable(checkpoint.path), checkpoint.kind);
  for (const auto& [name, value] : checkpoint.facts)
    text += fmt::format("{:<12} {}\n", name, base::printable(value));
  text += sum_line("weights", sum_of(checkpoint.distinct_weights()));
  for (const auto& state : checkpoint.states) {
    text += sum_line(base::printable(state.name), sum_of(state.tensors->tensors()));
  }
  if (lists_tensors && checkpoint.weights != nullptr) text += tensor_lines(checkpoint);
  return text;
}

json checkpoint_json(const stored::AnyCheckpoint& checkpoint) {
  json states = json::object();
  for (const auto& state : checkpoint.states) {
    states[state.name] = tensors_json(state.tensors->tensors());
  }
  json facts = json::object();
  for (const auto& [name, value] : checkpoint.facts) facts[name] = value;
  const Sum sum = sum_of(checkpoint.distinct_weights());
  return {{"kind", checkpoint.kind},
          {"path", checkpoint.path},
          {"facts", facts},
          {"parameters", sum.numel},
          {"bytes", sum.bytes},
          {"weights", checkpoint.weights == nullptr ? json::array()
                                                    : tensors_json(checkpoint.weights->tensors())},
          {"tied", checkpoint.tied},
          {"states", states}};
}

std::string diff_table(const checkpoint::CheckpointDiff& diff) {
  const auto name_of = [](const auto& found) {
    return base::printable(found.tensor.empty() ? found.part
                                                : fmt::format("{} {}", found.part, found.tensor));
  };
  size_t width = 6;
  for (const auto& found : diff.differences) width = std::max(width, name_of(found).size());
  std::string text =
      fmt::format("{:<{}}  {:>10}  {:>10}  what\n", "tensor", width, "elements", "largest");
  for (const auto& found : diff.differences) {
    const bool has_values = found.num_different > 0;
    text += fmt::format("{:<{}}  {:>10}  {:>10}  {}\n", name_of(found), width,
                        has_values ? std::to_string(found.num_different) : "",
                        has_values ? fmt::format("{:.3e}", found.largest) : "", found.what);
  }
  return text;
}

json diff_json(const checkpoint::CheckpointDiff& diff) {
  json all = json::array();
  for (const auto& found : diff.differences) {
    json entry = {{"part", found.part},
                  {"tensor", found.tensor},
                  {"what", found.what},
                  {"elements", found.num_different}};
    // JSON has no infinity.
    entry["largest"] = std::isfinite(found.largest) ? json(found.largest) : json();
    all.push_back(std::move(entry));
  }
  return {
      {"equal", diff.differences.empty()}, {"compared", diff.num_compared}, {"differences", all}};
}

}  // namespace fullshard::worker
