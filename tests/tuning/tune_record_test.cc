// SPDX-License-Identifier: Apache-2.0
#include "fullshard/tuning/tune_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <stdexcept>

#include "fullshard/tuning/ladder.h"
#include "fullshard/tuning/tune_page.h"
#include "tests/errors.h"
#include "tests/files.h"
#include "tests/tuning/fake_trials.h"

namespace fullshard::tuning {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// With speeds that no other rung has.
FakeTrials distinct_trials() {
  FakeTrials trials;
  trials.speed = [](const Rung& rung) {
    const double batch = 0.125 * static_cast<double>(rung.micro_batch);
    return 100.5 - rung.stage - (rung.recompute ? 0.25 : 0.0) + batch;
  };
  return trials;
}

const std::vector<int64_t> kFewBatches = {1, 2, 3, 4};

TEST(TuneRecord, OfAnInterruptedTuneIsGoneOnWith) {
  const testing::TemporaryFolder folder;
  const ClimbOptions options{.rungs = ladder({.ranks = 2}), .batches = kFewBatches};
  FakeTrials whole = distinct_trials();
  const Climbed expected = climb(options, whole);

  FakeTrials first = distinct_trials();
  first.before = [](const Rung& rung) {
    if (rung.title() == "ZeRO-2") throw std::runtime_error("interrupted");
  };
  {
    TuneRecord record(folder.file("tune.json"), "a question", false);
    RecordedTrials trials(first, record);
    EXPECT_THROW(climb(options, trials), std::runtime_error);
  }
  FakeTrials second = distinct_trials();
  TuneRecord record(folder.file("tune.json"), "a question", false);
  RecordedTrials trials(second, record);
  const Climbed climbed = climb(options, trials);

  EXPECT_THAT(first.measured, ElementsAre("batch 1", "recomputation", "ZeRO-1"));
  std::vector<std::string> all = first.measured;
  all.insert(all.end(), second.measured.begin(), second.measured.end());
  EXPECT_EQ(all, whole.measured);  // nothing twice
  EXPECT_EQ(rungs_json(climbed), rungs_json(expected));

  FakeTrials third = distinct_trials();
  third.num_measurements_left = 0;  // what is known takes no time
  RecordedTrials again(third, record);
  EXPECT_EQ(rungs_json(climb(options, again)), rungs_json(expected));
  EXPECT_THAT(third.measured, IsEmpty());
}

TEST(TuneRecord, OfAnotherTuneIsRefused) {
  const testing::TemporaryFolder folder;
  TuneRecord(folder.file("tune.json"), "train --model a", false).set_status("running");
  EXPECT_THAT(
      testing::message_of([&] { TuneRecord(folder.file("tune.json"), "train --model b", false); }),
      HasSubstr("is about another run (train --model a)"));
  const TuneRecord anew(folder.file("tune.json"), "train --model b", true);
}

TEST(TuneRecord, ThatIsNoneIsRefused) {
  const testing::TemporaryFolder folder;
  std::ofstream(folder.file("tune.json")) << "{\"rungs\": 3}";
  EXPECT_THAT(testing::message_of([&] { TuneRecord(folder.file("tune.json"), "", false); }),
              HasSubstr("is not a tune record"));
  std::ofstream(folder.file("tune.json")) << std::string(300000, '[');
  EXPECT_THAT(testing::message_of([&] { TuneRecord(folder.file("tune.json"), "", false); }),
              HasSubstr("--overwrite starts again"));
}

TEST(TuneRecord, HasEveryRungAndTheWinner) {
  const testing::TemporaryFolder folder;
  FakeTrials fakes = distinct_trials();
  TuneRecord record(folder.file("tune.json"), "q", false);
  RecordedTrials trials(fakes, record);
  const Climbed climbed = climb({.rungs = ladder({.ranks = 2})}, trials);
  record.set_status("done", climbed.results[*climbed.winner].rung.title());
  const auto json = nlohmann::json::parse(testing::read_file(folder.file("tune.json")));
  EXPECT_EQ(json["status"], "done");
  EXPECT_EQ(json["winner"], "batch 1");
  EXPECT_EQ(json["rungs"].size(), 10u);
}

TEST(TuneJson, HasItsKeysAndTheWinnerLast) {
  FakeTrials trials = distinct_trials();
  const Climbed climbed = climb({.rungs = ladder({.ranks = 2}), .batches = kFewBatches}, trials);
  const auto json = nlohmann::json::parse(rungs_json(climbed));
  ASSERT_EQ(json.size(), climbed.results.size());
  for (const auto& rung : json) {
    for (const char* key :
         {"name", "config", "fits", "planned_bytes", "peak_bytes", "tokens_per_s"}) {
      EXPECT_TRUE(rung.contains(key)) << rung.dump();
    }
  }
  EXPECT_EQ(json.back()["name"], "batch 4");
  EXPECT_EQ(json.back()["config"]["rung"], "batch 4");
  EXPECT_EQ(json.back()["tokens_per_s"], 101.0);
  EXPECT_EQ(json.back()["fits"], true);
  EXPECT_EQ(json[0]["planned_bytes"], 1);
}

TEST(TunePage, HasTheTableAndEscapesWhatItShows) {
  FakeTrials trials = distinct_trials();
  const Climbed climbed = climb({.rungs = ladder({.ranks = 2})}, trials);
  const std::string page = tune_page(climbed, "<model> on 2 CPU ranks");
  EXPECT_THAT(page, HasSubstr("<h1>&lt;model&gt; on 2 CPU ranks</h1>"));
  EXPECT_THAT(page, HasSubstr("<td><strong>batch 1</strong></td><td>yes</td>"));
  EXPECT_THAT(page, HasSubstr("nothing would move"));
  EXPECT_THAT(page, HasSubstr("</html>"));
}

}  // namespace
}  // namespace fullshard::tuning
