// SPDX-License-Identifier: Apache-2.0
#include "fullshard/engine/settle_options.h"

#include <fmt/ranges.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "fullshard/base/error.h"
#include "fullshard/engine/plan/measured_share.h"
#include "fullshard/engine/plan/option_texts.h"
#include "fullshard/engine/storage/agreement.h"

namespace fullshard::engine {
namespace {

constexpr std::string_view kDeferred = "deferred", kWithValues = "with values";

bool is_deferred(const torch::nn::Module& module) {
  const auto parameters = module.parameters();
  return std::any_of(parameters.begin(), parameters.end(),
                     [](const at::Tensor& each) { return each.is_meta(); });
}

// What a rank tells: whether its model is deferred, then the value of every option.
std::string words_of(const torch::nn::Module& module, const std::vector<OptionText>& options) {
  std::string words(is_deferred(module) ? kDeferred : kWithValues);
  for (const auto& option : options) words += '\0' + option.value;
  return words;
}

std::vector<std::string> split(const std::string& words) {
  std::vector<std::string> parts(1);
  for (const char letter : words) {
    if (letter == '\0') {
      parts.emplace_back();
    } else {
      parts.back() += letter;
    }
  }
  return parts;
}

std::vector<std::string> differences(const std::vector<OptionText>& options,
                                     const std::vector<std::vector<std::string>>& told) {
  std::vector<std::string> found;
  for (size_t i = 0; i < options.size(); ++i) {
    const auto& first = told[0].at(i + 1);
    const auto other = std::find_if(told.begin(), told.end(),
                                    [&](const auto& parts) { return parts.at(i + 1) != first; });
    if (other == told.end()) continue;
    found.push_back(fmt::format("{} is {} on rank 0 and {} on rank {}", options[i].name, first,
                                other->at(i + 1), other - told.begin()));
  }
  return found;
}

// Whether rank 0's model is deferred.
bool compare_options(const torch::nn::Module& module, const ShardOptions& options,
                     const Communicator& everyone) {
  const auto own = option_texts(options);
  std::vector<std::vector<std::string>> told;
  for (const auto& words :
       gather_texts(everyone, words_of(module, own), "the comparison of options")) {
    told.push_back(split(words));
  }
  const auto found = differences(own, told);
  if (!found.empty()) {
    fail_as(ErrorKind::usage,
            "shard: ranks were given different options: {}; give all ranks the same ShardOptions",
            fmt::join(found, "; "));
  }
  return told[0][0] == kDeferred;
}

}  // namespace

ShardOptions settle_options(ShardOptions options, const torch::nn::Module& module,
                            const World& world) {
  const auto& everyone = world.communicator();
  const bool has_nothing_to_take = is_alone(everyone) || compare_options(module, options, everyone);
  if (has_nothing_to_take) options.sync_module_states = false;
  options.offload = with_measured_share(std::move(options.offload), world);
  return options;
}

}  // namespace fullshard::engine
