// SPDX-License-Identifier: Apache-2.0
// Files that tests write, and the errors that they cause.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "fullshard/base/error.h"
#include "tests/files.h"

namespace fullshard::testing {

class DataFolder : public TemporaryFolder {
 public:
  std::string write(const std::string& name, const std::string& bytes) const {
    std::ofstream(file(name), std::ios::binary) << bytes;
    return file(name);
  }
  template <class Token>
  std::string write_tokens(const std::string& name, const std::vector<Token>& tokens,
                           const std::string& header = {}) const {
    return write(name, header + bytes_of(tokens));
  }
  template <class Number>
  static std::string bytes_of(const std::vector<Number>& numbers) {
    return std::string(reinterpret_cast<const char*>(numbers.data()),
                       numbers.size() * sizeof(Number));
  }
};

// The message, without the folder, of the Error of this kind that `act` throws.
template <class Act>
std::string error_of(const Act& act, const DataFolder& folder, ErrorKind kind = ErrorKind::input) {
  try {
    act();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind);
    std::string text = error.what();
    const std::string prefix = folder.path() + "/";
    for (size_t at; (at = text.find(prefix)) != std::string::npos;) text.erase(at, prefix.size());
    return text;
  }
  ADD_FAILURE() << "no Error was thrown";
  return {};
}

}  // namespace fullshard::testing
