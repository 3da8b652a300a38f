// SPDX-License-Identifier: Apache-2.0
// A value together with where it came from.
#pragma once

#include <cstdint>
#include <string>

namespace fullshard {

struct Origin {
  enum class From { fallback, file, environment, flag, derived };

  From from = From::fallback;
  std::string file{};
  int line = 0;
  std::string key{};   // as it was written, dotted
  std::string note{};  // the variable, the flag, or what it was derived from
  int64_t ranks = 0;   // ranks a batch size was derived for; 0: it holds for any number

  bool is_explicit() const { return from != From::fallback && from != From::derived; }
  // "ds.json:12", "environment", "flag", "default" or "derived".
  std::string text() const;
};

// In code, assign `value`; the origin stays "default" unless it is set.
template <class T>
struct Setting {
  T value{};
  Origin origin{};

  const T& operator*() const { return value; }
  const T* operator->() const { return &value; }
  Setting& operator=(T new_value) {
    value = std::move(new_value);
    return *this;
  }
};

}  // namespace fullshard
