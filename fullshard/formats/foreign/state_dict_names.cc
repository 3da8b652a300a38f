// SPDX-License-Identifier: Apache-2.0
#include "fullshard/formats/foreign/state_dict_names.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace fullshard::formats {
namespace {

constexpr std::array<std::string_view, 3> kModelKeys = {"model", "module", "state_dict"};
constexpr std::array<std::string_view, 2> kOptimizerKeys = {"optimizer", "optim"};

template <size_t count>
bool is_one_of(const std::array<std::string_view, count>& keys, std::string_view key) {
  return std::ranges::find(keys, key) != keys.end();
}

std::string join(const std::vector<std::string>& keys, size_t begin, size_t end) {
  return fmt::format("{}", fmt::join(keys.begin() + static_cast<ptrdiff_t>(begin),
                                     keys.begin() + static_cast<ptrdiff_t>(end), "."));
}

}  // namespace

// A whole application may lie one key deeper.
void StateDictNames::add(const std::string& name, const std::vector<std::string>& keys) {
  const size_t top = !keys.empty() && keys[0] == "app" ? 1 : 0;
  const size_t left = keys.size() - std::min(keys.size(), top);
  if (left >= 2 && is_one_of(kModelKeys, keys[top])) {
    weights[join(keys, top + 1, keys.size())] = name;
  } else if (left >= 2 && is_one_of(kOptimizerKeys, keys[top])) {
    if (left < 4 || keys[top + 1] != "state") return;
    states[keys.back()][join(keys, top + 2, keys.size() - 1)] = name;
  } else {
    others[name] = name;
  }
}

void StateDictNames::take_step() {
  const auto steps = states.find("step");
  if (steps == states.end()) return;
  step = steps->second.begin()->second;
  states.erase(steps);
}

std::vector<std::string> keys_of_name(const std::string& name) {
  std::vector<std::string> keys;
  for (size_t at = 0; at <= name.size();) {
    const size_t dot = std::min(name.find('.', at), name.size());
    keys.push_back(name.substr(at, dot - at));
    at = dot + 1;
  }
  return keys;
}

}  // namespace fullshard::formats
