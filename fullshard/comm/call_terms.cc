// SPDX-License-Identifier: Apache-2.0
#include "fullshard/comm/call_terms.h"

#include <c10/core/ScalarType.h>
#include <fmt/format.h>

#include <algorithm>

namespace fullshard::comm {
namespace {

bool look_alike(const CallTerms& a, const CallTerms& b) {
  return a.bytes == b.bytes && a.operation == b.operation && a.unit == b.unit;
}

// With `details` where two calls differ in nothing that the short form shows.
std::string describe(const CallTerms& terms, bool details) {
  const auto operation = static_cast<Operation>(terms.operation);
  const std::string call = describe_call(operation, terms.unit.data());
  if (!details) return fmt::format("{} ({} bytes)", call, terms.bytes);
  static constexpr const char* kOps[] = {"sum", "average", "max", "min"};
  const auto dtype = [](int32_t type) { return c10::toString(static_cast<at::ScalarType>(type)); };
  std::string text = fmt::format("{} ({} bytes", call, terms.bytes);
  if (operation != Operation::barrier) text += fmt::format(" of {}", dtype(terms.dtype));
  if (operation == Operation::broadcast) text += fmt::format(" from rank {}", terms.root);
  if (operation == Operation::reduce_scatter || operation == Operation::all_reduce) {
    text += fmt::format(", {} in {} slices, {} {}", kOps[terms.op], terms.slices,
                        terms.accumulate ? "added to" : "into", dtype(terms.output_dtype));
  }
  return text + fmt::format(", sequence {})", terms.sequence);
}

}  // namespace

CallTerms::CallTerms(const Call& call)
    : sequence(call.sequence), bytes(call.bytes), operation(static_cast<int32_t>(call.operation)) {
  std::copy_n(call.unit.data(), std::min(call.unit.size(), unit.size() - 1), unit.data());
}

std::string describe_call(Operation operation, std::string_view unit) {
  return unit.empty() ? std::string(name_of(operation))
                      : fmt::format("{} of {}", name_of(operation), unit);
}

std::optional<std::string> find_disagreement(std::span<const CallTerms> terms,
                                             std::span<const int> ranks, std::string_view group) {
  const auto other = std::find_if(terms.begin(), terms.end(),
                                  [&](const CallTerms& each) { return each != terms.front(); });
  if (other == terms.end()) return std::nullopt;
  const bool details = look_alike(terms.front(), *other);
  return fmt::format(
      "ranks disagree at sequence {} of group {}: rank {} calls {}, rank {} calls {}; all ranks "
      "must make the same calls in the same order",
      terms.front().sequence, group, ranks.front(), describe(terms.front(), details),
      ranks[static_cast<size_t>(other - terms.begin())], describe(*other, details));
}

}  // namespace fullshard::comm
