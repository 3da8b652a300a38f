// SPDX-License-Identifier: Apache-2.0
#include "fullshard/report/records/run_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "fullshard/base/error.h"
#include "tests/files.h"

namespace fullshard::report {
namespace {

using fullshard::testing::entries_of;
using fullshard::testing::read_file;
using fullshard::testing::TemporaryFolder;
using ::testing::ElementsAre;

RunRecord example_run() {
  RunRecord record;
  record.status = RunStatus::failed;
  record.problem = "rank 1: out of memory";
  record.checkpoint = "out/checkpoints/step-000010";
  record.versions = {{"fullshard", "0.1.0"}, {"libtorch", "2.13.0"}};
  record.command = {"fullshard", "train", "--data", "my corpus.txt"};
  record.device = "cpu";
  record.mesh = {.world = 4, .replicas = 2, .shards = 2, .hosts = {"a", "b"}};
  record.model = {.name = "llama-15m", .architecture = "LlamaForCausalLM", .parameters = 15191712};
  record.configuration =
      R"({"zero_optimization.stage":{"value":3,"origin":"ds.json:4","effect":"shards"}})";
  record.memory = {.planned = {{.tier = "device",
                                .rest_bytes = 150,
                                .peak_bytes = 205,
                                .peak_at = "backward of unit 'layers.1'",
                                .by_purpose = {{"parameters", 200}, {"workspace", 5}}}},
                   .unsharded = {{"parameters", "device", 400}, {"optimizer", "device", 800}},
                   .ranks = {{{"parameters", "device", 200}, {"optimizer", "host", 400}}}};
  record.disk = DiskTraffic{.folders = {"/nvme"},
                            .bytes_read = 300,
                            .bytes_written = 200,
                            .bytes_written_per_day = 86400,
                            .read_wait_s = 0.5,
                            .write_wait_s = 0.25};
  record.warnings = {"ds.json:9: key: has no effect"};
  record.num_steps = 100;
  record.first_step = 40;
  record.tokens = 4096;
  record.started = 1936163289;
  record.ended = 1936163299;
  return record;
}

std::string refusal_of_run(const std::string& text) {
  try {
    parse_run_record(text, "out/run.json");
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_status(), 4);
    return error.what();
  }
  return "taken";
}

TEST(RunRecord, CallsARunThatCameToItsEndDone) {
  RunRecord record;
  record.status = RunStatus::finished;
  EXPECT_EQ(nlohmann::json::parse(to_json(record))["status"], "done");
  EXPECT_EQ(parse_run_record(R"({"status": "finished"})", "old").status, RunStatus::finished);
}

TEST(RunRecord, IsReadBackAsItWasWritten) {
  const std::string text = to_json(example_run());
  const RunRecord back = parse_run_record(text, "run.json");
  EXPECT_EQ(to_json(back), text);
  EXPECT_EQ(back.status, RunStatus::failed);
  EXPECT_EQ(back.problem, "rank 1: out of memory");
  EXPECT_THAT(back.command, ElementsAre("fullshard", "train", "--data", "my corpus.txt"));
  EXPECT_EQ(back.mesh.replicas, 2);
  EXPECT_THAT(back.mesh.hosts, ElementsAre("a", "b"));
  EXPECT_EQ(back.model.parameters, 15191712);
  EXPECT_EQ(back.memory.ranks.at(0).at(1).tier, "host");
  EXPECT_EQ(back.memory.unsharded.at(1).bytes, 800);
  EXPECT_EQ(back.memory.planned.at(0).peak_at, "backward of unit 'layers.1'");
  EXPECT_EQ(back.first_step, 40);
  EXPECT_EQ(back.started, 1936163289);
  EXPECT_EQ(back.ended, 1936163299);
  EXPECT_EQ(back.configuration, example_run().configuration);
}

TEST(RunRecord, ReadsLikeThePromisedFile) {
  const auto json = nlohmann::json::parse(to_json(example_run()));
  EXPECT_EQ(json["status"], "failed");
  EXPECT_EQ(json["versions"]["libtorch"], "2.13.0");
  EXPECT_EQ(json["mesh"]["shards"], 2);
  EXPECT_EQ(json["started"], "2031-05-10T07:08:09Z");
  EXPECT_EQ(json["configuration"]["zero_optimization.stage"]["origin"], "ds.json:4");
  EXPECT_EQ(json["memory_plan"]["ranks"][0][0]["bytes"], 200);
  EXPECT_EQ(json["memory_plan"]["planned"]["device"]["peak_bytes"], 205);
  EXPECT_EQ(json["memory_plan"]["planned"]["device"]["by_purpose"]["parameters"], 200);
  EXPECT_EQ(json["disk"]["bytes_written_per_day"], 86400);
}

TEST(RunRecord, HasNoEndWhileItRuns) {
  RunRecord record;
  const std::string text = to_json(record);
  EXPECT_TRUE(nlohmann::json::parse(text)["ended"].is_null());
  EXPECT_EQ(parse_run_record(text, "run.json").ended, std::nullopt);
  EXPECT_EQ(parse_run_record(text, "run.json").status, RunStatus::running);
}

TEST(RunRecord, TakesTextThatIsNotUtf8) {
  RunRecord record;
  record.problem = "bad \xFF byte";
  EXPECT_EQ(parse_run_record(to_json(record), "run.json").problem, "bad \xEF\xBF\xBD byte");
}

TEST(RunRecord, IsWrittenWholeOrNotAtAll) {
  TemporaryFolder folder;
  write_run_record(folder.file("run.json"), example_run());
  EXPECT_EQ(read_file(folder.file("run.json")), to_json(example_run()));
  EXPECT_THAT(entries_of(folder.path()), ElementsAre("run.json"));
  EXPECT_EQ(to_json(read_run_record(folder.file("run.json"))), to_json(example_run()));
  try {
    write_run_record("/nowhere/run.json", example_run());
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "/nowhere/run.json: cannot be written: No such file or directory; make room, or "
                 "name another place");
    EXPECT_EQ(error.exit_status(), 4);
  }
}

// The process that wrote it was killed after saving.
TEST(RunRecord, IsClosedWithTheLastCheckpoint) {
  const testing::TemporaryFolder folder;
  std::filesystem::create_directories(folder.file("checkpoints/step-000004"));
  for (const auto& [latest, expected] :
       {std::pair{"step-000004\n", folder.file("checkpoints/step-000004")},
        {"step-000005\n", std::string()},
        {"../checkpoints/step-000004\n", std::string()}}) {
    std::ofstream(folder.file("checkpoints/latest")) << latest;
    write_run_record(folder.file("run.json"), {});
    ASSERT_TRUE(close_run_record(folder.path(), RunStatus::failed, "killed", 0));
    EXPECT_EQ(read_run_record(folder.file("run.json")).checkpoint, expected) << latest;
    EXPECT_FALSE(close_run_record(folder.path(), RunStatus::failed, "again", 0));
  }
}

TEST(RunRecord, RefusesWrongTypesWithTheirKey) {
  EXPECT_EQ(refusal_of_run("{"),
            "out/run.json: is not valid JSON at column 2; was it written by another program?");
  EXPECT_EQ(refusal_of_run("{\"configuration\": " + std::string(100'000, '[')),
            "out/run.json: is nested more than 100 deep at column 118; was it written by another "
            "program?");
  EXPECT_EQ(refusal_of_run("[]"), "out/run.json: found [], expected an object");
  EXPECT_EQ(refusal_of_run(R"({"status":"asleep"})"),
            "out/run.json: status: found \"asleep\", expected running, done, failed or "
            "interrupted");
  EXPECT_EQ(refusal_of_run(R"({"mesh":{"world":"two"}})"),
            "out/run.json: mesh.world: found \"two\", expected a whole number");
  EXPECT_EQ(refusal_of_run(R"({"mesh":3})"), "out/run.json: mesh: found 3, expected an object");
  EXPECT_EQ(refusal_of_run(R"({"command":"x"})"),
            "out/run.json: command: found \"x\", expected a list");
  EXPECT_EQ(refusal_of_run(R"({"started":"noon"})"),
            "out/run.json: started: found \"noon\", expected a time like \"2031-05-06T07:08:09Z\"");
  EXPECT_EQ(refusal_of_run(R"({"memory_plan":{"ranks":[[{"bytes":"x"}]]}})"),
            "out/run.json: memory_plan.bytes: found \"x\", expected a whole number");
  EXPECT_EQ(refusal_of_run(R"({"memory_plan":{"planned":{"device":{"peak_bytes":"x"}}}})"),
            "out/run.json: memory_plan.planned.device.peak_bytes: found \"x\", expected a whole "
            "number");
}

}  // namespace
}  // namespace fullshard::report
