// SPDX-License-Identifier: Apache-2.0
#include "fullshard/report/records/run_start.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "fullshard/report/html_report.h"
#include "fullshard/report/records/run_folder.h"
#include "fullshard/report/records/run_record.h"
#include "tests/errors.h"
#include "tests/files.h"

namespace fullshard::report {
namespace {

using fullshard::testing::entries_of;
using fullshard::testing::message_of;
using fullshard::testing::read_file;
using fullshard::testing::TemporaryFolder;
using ::testing::HasSubstr;

class RunStarts : public ::testing::Test {
 protected:
  std::string start(const RunStart& how) {
    return message_of([&] { check_run_start(folder_.path(), how); });
  }
  void leave(RunStatus status, bool has_steps) {
    RunRecord record;
    record.status = status;
    write_run_record(folder_.file("run.json"), record);
    std::ofstream(folder_.file("metrics.jsonl")) << (has_steps ? "{\"step\": 1}\n" : "");
  }
  // Leaves the folder as a killed run does.
  pid_t die_as_owner() {
    const pid_t child = ::fork();
    if (child == 0) {
      new RunLock(folder_.path());
      ::_exit(0);
    }
    ::waitpid(child, nullptr, 0);
    return child;
  }
  nlohmann::json record() { return nlohmann::json::parse(read_file(folder_.file("run.json"))); }

  TemporaryFolder folder_;
  const std::string refusal_ = folder_.path() +
                               ": holds a run already; choose another --output, or add "
                               "--overwrite";
};

TEST_F(RunStarts, AreFreeInAnEmptyFolder) { EXPECT_EQ(start({}), "no error"); }

TEST_F(RunStarts, RemoveWhatAKilledRunLeftUnfinished) {
  const pid_t dead = die_as_owner();
  ::unlink(folder_.file("run.lock").c_str());
  const auto put = [&](const std::string& name) { std::ofstream(folder_.file(name)) << "half"; };
  for (const char* name : {"run.json", "report.html"}) {
    put(fmt::format("{}.{}.part", name, dead));
    put(name);
  }
  // Not left by a run, or being written by a live one.
  const std::string others[] = {"run.json.part", "run.json.x.part", "mine.12345678.part",
                                fmt::format("run.json.{}.part", ::getpid())};
  for (const auto& name : others) put(name);
  remove_unfinished_records(folder_.path());
  EXPECT_THAT(entries_of(folder_.path()),
              ::testing::UnorderedElementsAre("run.json", "report.html", others[0], others[1],
                                              others[2], others[3]));
}

TEST_F(RunStarts, KeepWhatIsThere) {
  for (const auto status : {RunStatus::running, RunStatus::failed, RunStatus::interrupted}) {
    leave(status, true);
    EXPECT_EQ(start({}), refusal_);
    EXPECT_EQ(start({.overwrites = true}), "no error");
    EXPECT_EQ(start({.resumes = true}), "no error");
    EXPECT_EQ(start({.may_begin_again = true}), "no error");
  }
}

TEST_F(RunStarts, DoNotBeginAFinishedRunAgain) {
  leave(RunStatus::finished, true);
  EXPECT_EQ(start({.may_begin_again = true}),
            folder_.path() +
                ": holds a run already, which is done and left no checkpoint to resume; choose "
                "another --output, or add --overwrite");
  EXPECT_EQ(start({.overwrites = true}), "no error");
}

TEST_F(RunStarts, NeedNoLeaveWhereNoStepWasDone) {
  leave(RunStatus::failed, false);
  EXPECT_EQ(start({}), "no error");
  leave(RunStatus::finished, false);
  EXPECT_EQ(start({}), refusal_);
}

TEST_F(RunStarts, KeepARecordThatCannotBeRead) {
  std::ofstream(folder_.file("run.json")) << "{";
  EXPECT_EQ(start({.may_begin_again = true}).substr(0, refusal_.find(';')),
            refusal_.substr(0, refusal_.find(';')));
}

TEST_F(RunStarts, CloseWhatAKilledRunLeftOpen) {
  leave(RunStatus::running, true);
  const pid_t owner = die_as_owner();
  // Keys that this version does not know stay.
  auto json = record();
  json["added_later"] = 7;
  std::ofstream(folder_.file("run.json")) << json.dump();
  EXPECT_TRUE(close_dead_run(folder_.path()));
  EXPECT_EQ(record()["status"], "failed");
  EXPECT_THAT(record()["problem"].get<std::string>(),
              HasSubstr(fmt::format("process {} on host ", owner)));
  EXPECT_TRUE(record()["ended"].is_string());
  EXPECT_EQ(record()["added_later"], 7);
  EXPECT_FALSE(close_dead_run(folder_.path()));
}

TEST_F(RunStarts, LeaveALiveRunAlone) {
  leave(RunStatus::running, true);
  const RunLock live(folder_.path());
  EXPECT_FALSE(close_dead_run(folder_.path()));
  EXPECT_EQ(record()["status"], "running");
  // However long it has been silent.
  EXPECT_TRUE(read_run_folder(folder_.path()).is_live(1e12));
}

TEST_F(RunStarts, AKilledRunIsShownAsFailedWhereNothingCanBeWritten) {
  leave(RunStatus::running, true);
  die_as_owner();
  const RunFolder run = read_run_folder(folder_.path());
  EXPECT_FALSE(run.is_live(run.last_write));
  const std::string page = html_report(run, run.last_write);
  EXPECT_THAT(page, HasSubstr(R"(<span class="status failed">failed</span>)"));
  EXPECT_THAT(page, HasSubstr(" ended unexpectedly: killed, out of memory, or its machine "
                              "stopped</pre>"));
  EXPECT_EQ(record()["status"], "running");
}

TEST_F(RunStarts, RemoveTheRecordsOfARunThatIsReplaced) {
  leave(RunStatus::finished, true);
  std::ofstream(folder_.file("report.html")) << "x";
  std::ofstream(folder_.file("notes.txt")) << "x";
  remove_run_records(folder_.path());
  EXPECT_THAT(entries_of(folder_.path()), ::testing::ElementsAre("notes.txt"));
}

}  // namespace
}  // namespace fullshard::report
