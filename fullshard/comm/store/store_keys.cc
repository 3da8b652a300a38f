// SPDX-License-Identifier: Apache-2.0
#include "fullshard/comm/store/store_keys.h"

#include <algorithm>
#include <cstdlib>

namespace fullshard::comm {

std::optional<std::string> StoreKeys::find(const std::string& key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? std::nullopt : std::optional(found->second);
}

std::string StoreKeys::compare_set(const std::string& key, const std::string& expected,
                                   const std::string& desired) {
  const auto found = values_.find(key);
  if (found == values_.end() && !expected.empty()) return expected;
  if (found != values_.end() && found->second != expected) return found->second;
  return values_[key] = desired;
}

int64_t StoreKeys::add(const std::string& key, int64_t amount) {
  const auto found = values_.find(key);
  const int64_t sum =
      amount + (found == values_.end() ? 0 : std::strtoll(found->second.c_str(), nullptr, 10));
  values_[key] = std::to_string(sum);
  return sum;
}

bool StoreKeys::has(std::span<const std::string> keys) const {
  return std::all_of(keys.begin(), keys.end(),
                     [&](const std::string& key) { return values_.contains(key); });
}

}  // namespace fullshard::comm
