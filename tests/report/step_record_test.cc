// SPDX-License-Identifier: Apache-2.0
#include "fullshard/report/records/step_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "fullshard/base/error.h"

namespace fullshard::report {
namespace {

StepRecord example() {
  return {.step = 7,
          .loss = 3.2188758850097656,
          .lr = 3e-4,
          .grad_norm = 1.5,
          .loss_scale = 65536,
          .tokens = 4096,
          .step_s = 0.25,
          .tokens_per_s = 16384,
          .device_peak_bytes = 0,
          .host_peak_bytes = 73400320,
          .comm_s = 0.03,
          .exposed_comm_s = 0.01};
}

const char* const kExample =
    R"({"step":7,"loss":3.2188758850097656,"lr":0.0003,"grad_norm":1.5,"loss_scale":65536.0,)"
    R"("tokens":4096,"step_s":0.25,"tokens_per_s":16384.0,"mfu":null,"device_peak_bytes":0,)"
    R"("host_peak_bytes":73400320,"comm_s":0.03,"exposed_comm_s":0.01,"skipped":false})";

std::string refusal_of(const std::string& line) {
  try {
    parse_step_record(line, "metrics.jsonl:3");
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_status(), 4);
    return error.what();
  }
  return "taken";
}

std::string with(std::string line, const std::string& old_part, const std::string& new_part) {
  return line.replace(line.find(old_part), old_part.size(), new_part);
}

TEST(StepRecord, IsOneLineOfJson) {
  EXPECT_EQ(to_json_line(example()), kExample);
  EXPECT_EQ(parse_step_record(kExample, "here"), example());
}

TEST(StepRecord, HasEvaluationAndPhasesOnlyWhereMeasured) {
  StepRecord record = example();
  record.eval_loss = 3.5;
  record.phases =
      PhaseTimes{.data_s = 0.01, .forward_s = 0.02, .backward_s = 0.03, .optimizer_s = 0};
  const std::string line = to_json_line(record);
  EXPECT_THAT(
      line, ::testing::EndsWith(R"("skipped":false,"eval_loss":3.5,"data_s":0.01,"forward_s":0.02,)"
                                R"("backward_s":0.03,"optimizer_s":0.0})"));
  EXPECT_EQ(parse_step_record(line, "here"), record);
}

TEST(StepRecord, HasWaitsOnlyWhereSomethingRestsElsewhere) {
  StepRecord record = example();
  record.offload = OffloadTimes{.update_wait_s = 0.1, .fetch_wait_s = 0.2, .copy_out_wait_s = 0.5};
  const std::string line = to_json_line(record);
  EXPECT_THAT(line, ::testing::EndsWith(R"("skipped":false,"update_wait_s":0.1,"fetch_wait_s":0.2,)"
                                        R"("copy_in_wait_s":0.0,"copy_out_wait_s":0.5})"));
  EXPECT_EQ(parse_step_record(line, "here"), record);
}

TEST(StepRecord, KeepsEveryBitOfANumber) {
  std::mt19937_64 bits(1);
  for (int i = 0; i < 2000; ++i) {
    StepRecord record = example();
    record.loss = std::bit_cast<double>(bits());
    if (!std::isfinite(record.loss)) continue;
    record.lr = static_cast<double>(static_cast<float>(record.loss));
    if (!std::isfinite(record.lr)) record.lr = -0.0;
    const StepRecord back = parse_step_record(to_json_line(record), "here");
    ASSERT_EQ(std::bit_cast<uint64_t>(back.loss), std::bit_cast<uint64_t>(record.loss));
    ASSERT_EQ(std::bit_cast<uint64_t>(back.lr), std::bit_cast<uint64_t>(record.lr));
  }
}

TEST(StepRecord, SaysWhatIsNotFiniteInAWord) {
  StepRecord record = example();
  record.loss = std::nan("");
  record.grad_norm = std::numeric_limits<double>::infinity();
  record.lr = -std::numeric_limits<double>::infinity();
  const std::string line = to_json_line(record);
  EXPECT_THAT(line,
              ::testing::HasSubstr(R"("loss":"NaN","lr":"-Infinity","grad_norm":"Infinity",)"));
  const StepRecord back = parse_step_record(line, "here");
  EXPECT_TRUE(std::isnan(back.loss));
  EXPECT_EQ(back.grad_norm, record.grad_norm);
  EXPECT_EQ(back.lr, record.lr);
}

TEST(StepRecord, PassesOverKeysOfLaterVersions) {
  EXPECT_EQ(
      parse_step_record(with(kExample, R"("skipped")", R"("humidity":[1],"skipped")"), "here"),
      example());
}

TEST(StepRecord, RefusesWhatIsNoRecordWithPlaceAndKey) {
  EXPECT_EQ(refusal_of("{\"step\":1,"),
            "metrics.jsonl:3: is not valid JSON at column 11; remove the line");
  EXPECT_EQ(refusal_of("[1]"), "metrics.jsonl:3: is array, expected an object; remove the line");
  EXPECT_EQ(refusal_of(with(kExample, R"("lr":0.0003,)", "")),
            "metrics.jsonl:3: no \"lr\"; remove the line");
  EXPECT_EQ(refusal_of(with(kExample, "3.2188758850097656", R"("good")")),
            "metrics.jsonl:3: loss: found \"good\", expected a number, \"NaN\", \"Infinity\" or "
            "\"-Infinity\"");
  EXPECT_EQ(refusal_of(with(kExample, "\"tokens\":4096", "\"tokens\":4096.5")),
            "metrics.jsonl:3: tokens: found 4096.5, expected a whole number from 0 on");
  EXPECT_EQ(refusal_of(with(kExample, "\"step\":7", "\"step\":-7")),
            "metrics.jsonl:3: step: found -7, expected a whole number from 0 on");
  EXPECT_EQ(refusal_of(with(kExample, "\"skipped\":false", "\"skipped\":0")),
            "metrics.jsonl:3: skipped: found 0, expected true or false");
}

TEST(StepRecord, RefusesALineThatNestsWithoutEnd) {
  const std::string deep = std::string(100'000, '[') + std::string(100'000, ']');
  EXPECT_EQ(refusal_of(with(kExample, "3.2188758850097656", deep)),
            "metrics.jsonl:3: is nested more than 100 deep at column 117; remove the line");
}

TEST(StepRecord, ShowsValuesEscaped) {
  EXPECT_EQ(refusal_of(with(kExample, "\"skipped\":false", "\"skipped\":\"\x7f\"")),
            "metrics.jsonl:3: skipped: found \"\\x7f\", expected true or false");
}

}  // namespace
}  // namespace fullshard::report
