// SPDX-License-Identifier: Apache-2.0
#include "fullshard/config/schema/batch_sizes.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "fullshard/base/error.h"

namespace fullshard::config {
namespace {

using nlohmann::json;

std::optional<int64_t> value_of(const json& entry) {
  return entry.is_null() ? std::nullopt : std::optional(entry.get<int64_t>());
}

TEST(BatchSizes, EqualDeepSpeedsForEveryCombinationOfKeys) {
  const auto rows = json::parse(
      std::ifstream(FULLSHARD_SOURCE_DIR "/tests/fixtures/batch_sizes/batch_sizes.json"));
  ASSERT_EQ(rows.size(), 675);
  for (const auto& row : rows) {
    SCOPED_TRACE(row.dump());
    json found;
    try {
      const auto sizes = derive_batch_sizes({value_of(row[0]), value_of(row[1]), value_of(row[2])},
                                            row[3].get<int64_t>());
      found = {sizes.global_batch, sizes.micro_batch, sizes.accumulation};
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage);
    }
    EXPECT_EQ(found, row[4]);
  }
}

std::string sizes_error_of(const BatchSizeOptions& options, int64_t num_ranks) {
  try {
    derive_batch_sizes(options, num_ranks);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(BatchSizes, SaysWhatWouldFit) {
  EXPECT_EQ(sizes_error_of({24, 4, 2}, 2),
            "train_batch_size is 24, but train_micro_batch_size_per_gpu 4 times "
            "gradient_accumulation_steps 2 times 2 ranks is 16; train_batch_size 16, or "
            "gradient_accumulation_steps 3, or train_micro_batch_size_per_gpu 6 would fit");
  EXPECT_EQ(sizes_error_of({25, 4, 2}, 2),
            "train_batch_size is 25, but train_micro_batch_size_per_gpu 4 times "
            "gradient_accumulation_steps 2 times 2 ranks is 16; train_batch_size 16 would fit");
  EXPECT_EQ(sizes_error_of({25, 4, {}}, 3),
            "train_batch_size is 25, expected a multiple of train_micro_batch_size_per_gpu 4 times "
            "3 ranks, which is 12; 24 or 36 would fit");
  EXPECT_EQ(sizes_error_of({2, {}, 4}, 2),
            "train_batch_size is 2, expected a multiple of gradient_accumulation_steps 4 times 2 "
            "ranks, which is 8; 8 would fit");
  EXPECT_EQ(sizes_error_of({7, {}, {}}, 3),
            "train_batch_size is 7, expected a multiple of the number of ranks, which is 3; 6 or 9 "
            "would fit");
}

TEST(BatchSizes, NamesTheKeyThatIsMissingOrOutOfRange) {
  EXPECT_EQ(sizes_error_of({}, 2),
            "neither train_batch_size nor train_micro_batch_size_per_gpu is given, expected at "
            "least one of them");
  EXPECT_EQ(sizes_error_of({.gradient_accumulation_steps = 4}, 2),
            "neither train_batch_size nor train_micro_batch_size_per_gpu is given with "
            "gradient_accumulation_steps 4, expected at least one of them");
  EXPECT_EQ(sizes_error_of({.train_micro_batch_size_per_gpu = 0}, 2),
            "train_micro_batch_size_per_gpu is 0, expected an integer from 1 to 2097151");
  EXPECT_EQ(sizes_error_of({8, {}, -1}, 2),
            "gradient_accumulation_steps is -1, expected an integer from 1 to 2097151");
}

}  // namespace
}  // namespace fullshard::config
