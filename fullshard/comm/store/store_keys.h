// SPDX-License-Identifier: Apache-2.0
// The keys and values of a store, and what can be asked of them. One thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>

namespace fullshard::comm {

class StoreKeys {
 public:
  void set(const std::string& key, const std::string& value) { values_[key] = value; }
  std::optional<std::string> find(const std::string& key) const;
  // Sets `desired` where `expected` is, or where nothing is and nothing is expected; gives what is
  // there afterwards, as c10d's stores do.
  std::string compare_set(const std::string& key, const std::string& expected,
                          const std::string& desired);
  // Values are decimal numbers, as in c10d's stores.
  int64_t add(const std::string& key, int64_t amount);
  bool has(std::span<const std::string> keys) const;
  bool remove(const std::string& key) { return values_.erase(key) > 0; }
  int64_t count() const { return static_cast<int64_t>(values_.size()); }

 private:
  std::unordered_map<std::string, std::string> values_;
};

}  // namespace fullshard::comm
