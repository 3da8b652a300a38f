// SPDX-License-Identifier: Apache-2.0
#include "fullshard/config/schema/batch_sizes.h"

#include <fmt/ranges.h>

#include <string>
#include <utility>
#include <vector>

#include "fullshard/base/error.h"

namespace fullshard {

namespace {

constexpr auto kBatch = "train_batch_size";
constexpr auto kMicro = "train_micro_batch_size_per_gpu";
constexpr auto kAccumulation = "gradient_accumulation_steps";

template <class... Parts>
[[noreturn]] void reject_sizes(fmt::format_string<Parts...> format, Parts&&... parts) {
  fail_as(ErrorKind::usage, format, std::forward<Parts>(parts)...);
}

void check_given(const char* key, const std::optional<int64_t>& value, int64_t largest) {
  if (!value || (*value > 0 && *value <= largest)) return;
  reject_sizes("{} is {}, expected an integer from 1 to {}", key, *value, largest);
}

// "8 or 12": the multiples of `unit` next to `batch`.
std::string multiples_around(int64_t batch, int64_t unit) {
  const int64_t below = batch / unit * unit;
  if (below == 0) return fmt::format("{}", unit);
  return fmt::format("{} or {}", below, below + unit);
}

// All three are given and disagree.
[[noreturn]] void reject_mismatch(const BatchSizes& sizes, int64_t num_ranks) {
  const auto [batch, micro, accumulation] = sizes;
  std::vector<std::string> remedies = {
      fmt::format("{} {}", kBatch, micro * accumulation * num_ranks)};
  if (batch % (micro * num_ranks) == 0) {
    remedies.push_back(fmt::format("{} {}", kAccumulation, batch / (micro * num_ranks)));
  }
  if (batch % (accumulation * num_ranks) == 0) {
    remedies.push_back(fmt::format("{} {}", kMicro, batch / (accumulation * num_ranks)));
  }
  reject_sizes("{} is {}, but {} {} times {} {} times {} ranks is {}; {} would fit", kBatch, batch,
               kMicro, micro, kAccumulation, accumulation, num_ranks,
               micro * accumulation * num_ranks, fmt::join(remedies, ", or "));
}

// `batch` divided by `unit`; `what` names the product behind the unit.
int64_t divide(int64_t batch, int64_t unit, const std::string& what) {
  if (batch % unit != 0) {
    reject_sizes("{} is {}, expected a multiple of {}, which is {}; {} would fit", kBatch, batch,
                 what, unit, multiples_around(batch, unit));
  }
  return batch / unit;
}

}  // namespace

BatchSizes derive_batch_sizes(const BatchSizeOptions& options, int64_t num_ranks) {
  check(num_ranks > 0 && num_ranks <= kLargestMicroBatch, "batch sizes: {} ranks, expected 1 to {}",
        num_ranks, kLargestMicroBatch);
  const auto& [batch, micro, accumulation] = options;
  check_given(kBatch, batch, kLargestBatch);
  check_given(kMicro, micro, kLargestMicroBatch);
  check_given(kAccumulation, accumulation, kLargestMicroBatch);

  if (batch && micro && accumulation) {
    const BatchSizes sizes{*batch, *micro, *accumulation};
    if (*batch != *micro * *accumulation * num_ranks) reject_mismatch(sizes, num_ranks);
    return sizes;
  }
  if (batch && micro) {
    const auto what = fmt::format("{} {} times {} ranks", kMicro, *micro, num_ranks);
    return {*batch, *micro, divide(*batch, *micro * num_ranks, what)};
  }
  if (batch) {
    const int64_t steps = accumulation.value_or(1);
    const auto what = accumulation
                          ? fmt::format("{} {} times {} ranks", kAccumulation, steps, num_ranks)
                          : fmt::format("the number of ranks");
    return {*batch, divide(*batch, steps * num_ranks, what), steps};
  }
  if (micro) {
    const int64_t steps = accumulation.value_or(1);
    return {*micro * steps * num_ranks, *micro, steps};
  }
  reject_sizes("neither {} nor {} is given{}, expected at least one of them", kBatch, kMicro,
               accumulation ? fmt::format(" with {} {}", kAccumulation, *accumulation) : "");
}

}  // namespace fullshard
