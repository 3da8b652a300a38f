// SPDX-License-Identifier: Apache-2.0
// What the ranks of a group must agree on at one sequence number, in a form that can be sent.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "fullshard/base/error.h"
#include "fullshard/comm/backend.h"

namespace fullshard::comm {

struct CallTerms {
  uint64_t sequence = 0;
  int64_t bytes = 0;
  int32_t operation = 0;
  int32_t op = 0;
  int32_t slices = 0;
  int32_t root = 0;
  int32_t dtype = 0;
  int32_t output_dtype = 0;
  int32_t accumulate = 0;
  int32_t padding = 0;
  std::array<char, 64> unit{};  // shortened to 63 bytes

  explicit CallTerms(const Call& call);
  CallTerms() = default;
  bool operator==(const CallTerms&) const = default;
};

// "all_gather of unit 'blocks.2'": `unit` as it is written, or only the operation where it is
// empty.
std::string describe_call(Operation operation, std::string_view unit);

// The message when the ranks of a group do not make the same call; `ranks[i]` has `terms[i]`.
std::optional<std::string> find_disagreement(std::span<const CallTerms> terms,
                                             std::span<const int> ranks, std::string_view group);

// Carries that message: no rank is gone or late.
class Disagreement : public Error {
 public:
  using Error::Error;
};

}  // namespace fullshard::comm
