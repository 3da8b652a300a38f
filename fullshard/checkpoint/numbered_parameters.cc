// SPDX-License-Identifier: Apache-2.0
#include "fullshard/checkpoint/numbered_parameters.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <memory>
#include <numeric>

namespace fullshard::checkpoint {
namespace {

using Parameters = std::vector<OrderedParameter>;

bool has(const OrderedParameter& parameter, const char* part) {
  return parameter.name.find(part) != std::string::npos;
}

bool decays_as_matrix(const OrderedParameter& parameter) { return parameter.shape.size() >= 2; }

bool decays_in_scripts(const OrderedParameter& parameter) {
  return !has(parameter, "bias") && !has(parameter, "LayerNorm.weight");
}

constexpr std::array kRules = {decays_in_trainer, decays_as_matrix, decays_in_scripts};

// Groups without parameters number nothing.
std::vector<int64_t> sizes_of_groups(const formats::OptimizerFile& file) {
  auto sizes = file.group_sizes();
  std::erase(sizes, 0);
  return sizes;
}

// The parameters in the order of their numbers; empty: no known way of making groups fits.
Parameters order_in_groups(const Parameters& parameters, const std::vector<int64_t>& sizes) {
  if (sizes.size() == 1) return parameters;
  for (const auto& decays : kRules) {
    Parameters order = parameters;
    const auto rest = std::ranges::stable_partition(order, decays);
    if (sizes.size() == 2 && static_cast<int64_t>(rest.size()) == sizes[1]) return order;
  }
  return {};
}

std::string sizes_text(const std::vector<int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

std::string problem_of_shapes(const formats::OptimizerFile& file, const Parameters& order) {
  for (const auto& state : file.states()) {
    const auto source = file.state(state);
    for (size_t number = 0; number < order.size(); ++number) {
      const auto* stored = source->find(std::to_string(number));
      if (stored == nullptr || stored->shape == order[number].shape) continue;
      return fmt::format("its {} of number {} has the shape {}, and {}, which is due there, has {}",
                         state, number, sizes_text(stored->shape), order[number].name,
                         sizes_text(order[number].shape));
    }
  }
  return "";
}

}  // namespace

// Of vectors those that are no biases are weights of norms, which do not decay there either.
bool decays_in_trainer(const OrderedParameter& parameter) {
  return parameter.shape.size() >= 2 && !has(parameter, "bias");
}

NumberedNames name_numbers(const formats::OptimizerFile& file,
                           const std::vector<OrderedParameter>& parameters) {
  const auto sizes = sizes_of_groups(file);
  const auto count = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  if (count != static_cast<int64_t>(parameters.size())) {
    return {
        {},
        fmt::format("it numbers {} parameters, and {} are trained here", count, parameters.size())};
  }
  const Parameters order = order_in_groups(parameters, sizes);
  if (order.empty()) {
    return {{},
            fmt::format("it numbers its parameters in groups of {}, and which is which is known "
                        "only of one group, or of two by weight decay",
                        fmt::join(sizes, " and "))};
  }
  NumberedNames named{{}, problem_of_shapes(file, order)};
  if (!named.problem.empty()) return named;
  for (const auto& parameter : order) named.names.push_back(parameter.name);
  return named;
}

}  // namespace fullshard::checkpoint
