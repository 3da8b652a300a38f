// SPDX-License-Identifier: Apache-2.0
#include "fullshard/report/html_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <fstream>

#include "fullshard/base/error.h"
#include "fullshard/report/page_assets.h"
#include "tests/files.h"

namespace fullshard::report {
namespace {

using fullshard::testing::entries_of;
using fullshard::testing::read_file;
using fullshard::testing::TemporaryFolder;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr double kNow = 1936163300;

StepRecord report_at_step(int64_t step) {
  return {.step = step,
          .loss = 4.0 / static_cast<double>(step),
          .lr = 1e-3,
          .grad_norm = 0.5,
          .tokens = 4096,
          .step_s = 0.25,
          .tokens_per_s = 16384,
          .mfu = 0.25,
          .host_peak_bytes = 64 << 20,
          .comm_s = 0.1,
          .exposed_comm_s = 0.05};
}

RunFolder example_folder(RunStatus status = RunStatus::finished) {
  RunFolder run{.path = "runs/sums", .record = RunRecord{}, .last_write = kNow - 5};
  RunRecord& record = *run.record;
  record.status = status;
  record.command = {"fullshard", "train", "--data", "my corpus.txt"};
  record.versions = {{"libtorch", "2.13.0"}};
  record.mesh = {.world = 2, .replicas = 1, .shards = 2, .hosts = {"here"}};
  record.model = {.name = "llama-15m", .architecture = "LlamaForCausalLM", .parameters = 15191712};
  record.configuration =
      R"({"mixed_precision":{"value":"bf16","origin":"fsdp.yaml:3","effect":"computes in bf16"},)"
      R"("seed":{"value":42,"origin":"default","effect":"random numbers"}})";
  record.memory = {
      .unsharded = {{"parameters", "device", 64 << 20}, {"optimizer", "device", 128 << 20}},
      .ranks = {{{"parameters", "device", 32 << 20}, {"optimizer", "device", 64 << 20}}}};
  record.num_steps = 10;
  record.started = 1936163200;
  if (status != RunStatus::running) record.ended = 1936163275;
  for (int step = 1; step <= 4; ++step) run.metrics.steps.push_back(report_at_step(step));
  run.metrics.steps[3].eval_loss = 1.25;
  run.logs = {{.rank = 0, .lines = {"hello", "world"}}};
  run.num_logs = 1;
  return run;
}

TEST(HtmlReport, ShowsTheNumbersOfARun) {
  const std::string page = html_report(example_folder(), kNow);
  EXPECT_THAT(page, HasSubstr("<title>sums</title>"));
  EXPECT_THAT(page, HasSubstr(R"(<span class="status done">done</span>)"));
  EXPECT_THAT(page,
              HasSubstr("llama-15m &middot; LlamaForCausalLM &middot; 15.2 M parameters &middot; "
                        "2 ranks &middot; 1 replica &times; 2 shards"));
  EXPECT_THAT(page, HasSubstr("<dt>loss</dt><dd>1.0000<small>best 1.0000 at step 4</small>"));
  EXPECT_THAT(page, HasSubstr("<dt>evaluation loss</dt><dd>1.2500<small>"));
  EXPECT_THAT(page, HasSubstr("<dt>tokens/s</dt><dd>16.4 K<small>"));
  EXPECT_THAT(page, HasSubstr("<dt>MFU</dt><dd>25.0%<small>"));
  EXPECT_THAT(page, HasSubstr("<dt>peak memory</dt><dd>64 MiB<small>host of a rank"));
  EXPECT_THAT(page, HasSubstr("<dt>tokens</dt><dd>16.4 K<small>"));
  EXPECT_THAT(page, HasSubstr("<dt>time</dt><dd>1:15<small>0:01 inside steps"));
  EXPECT_THAT(page, HasSubstr("<p class=\"about\">Step 4 of 10.</p>"));
}

// Only the clock covers just the last part of a resumed run.
TEST(HtmlReport, CountsAllPartsOfAResumedRun) {
  RunFolder run = example_folder();
  run.record->first_step = 3;
  run.record->tokens = 4096;  // as counted by the last part alone
  const std::string page = html_report(run, kNow);
  EXPECT_THAT(page, HasSubstr("<dt>tokens</dt><dd>16.4 K<small>in 4 steps<"));
  EXPECT_THAT(page, HasSubstr("<dt>steps</dt><dd>4<small>0 skipped<"));
  EXPECT_THAT(page, HasSubstr("<dt>time</dt><dd>1:15<small>since step 3; 0:01 inside all steps<"));
}

TEST(HtmlReport, NamesTheStepsOfTheRunThatItBeganWith) {
  RunFolder run = example_folder();
  for (StepRecord& step : run.metrics.steps) step.step += 100;
  run.record->first_step = run.metrics.first_step = 100;
  const std::string page = html_report(run, kNow);
  EXPECT_THAT(page, HasSubstr("<dt>tokens</dt><dd>16.4 K<small>in 4 steps<"));
  EXPECT_THAT(page, HasSubstr("<dt>steps</dt><dd>104<small>0 skipped; counted since step 100<"));
  EXPECT_THAT(page, HasSubstr("<dt>time</dt><dd>1:15<small>0:01 inside steps<"));
}

TEST(HtmlReport, DrawsItsPictures) {
  const std::string page = html_report(example_folder(), kNow);
  for (const char* title :
       {"Loss over steps", "Learning rate over steps", "Gradient norm over steps",
        "Tokens/s over steps", "Seconds of a step, over steps", "Memory by purpose"}) {
    EXPECT_THAT(page, HasSubstr("<figcaption><b>" + std::string(title))) << title;
  }
  EXPECT_THAT(page, HasSubstr(R"(data-name="training" data-values="1 4 2 2 3 1.33333 4 1")"));
  EXPECT_THAT(page, HasSubstr(R"(data-name="evaluation" data-values="4 1.25")"));
}

// A hundredth of 121 steps would be the step itself.
TEST(HtmlReport, SmoothsOverTenStepsAtLeast) {
  RunFolder run = example_folder();
  run.metrics.steps.clear();
  for (int step = 1; step <= 121; ++step) {
    run.metrics.steps.push_back(report_at_step(step));
    run.metrics.steps.back().loss = step == 120 ? 12 : 1;
  }
  EXPECT_THAT(html_report(run, kNow), HasSubstr(" 119 1 120 3 121 2.63636\" data-mean"));
}

TEST(HtmlReport, SaysWhyARankHoldsMoreGradientsThanOneWithoutSharding) {
  RunFolder run = example_folder();
  run.record->memory = {.unsharded = {{"gradients", "device", 100}},
                        .ranks = {{{"gradients", "device", 100}}}};
  const char* const reason = "A rank also counts the whole gradients of units that are under way";
  EXPECT_THAT(html_report(run, kNow), Not(HasSubstr(reason)));
  run.record->memory.ranks[0][0].bytes = 101;
  EXPECT_THAT(html_report(run, kNow), HasSubstr(reason));
}

TEST(HtmlReport, SetsMemoryBesideTheUnshardedRun) {
  const std::string page = html_report(example_folder(), kNow);
  EXPECT_THAT(page, HasSubstr(R"(<span class="name">unsharded</span>)"));
  EXPECT_THAT(page,
              HasSubstr(R"(<i class="c1" style="width:33.333%" title="parameters: 64 MiB">)"));
  EXPECT_THAT(page, HasSubstr(R"(<span class="name">each rank</span>)"));
  EXPECT_THAT(page, HasSubstr(R"(<span class="total">96 MiB, 50.0%</span>)"));
}

TEST(HtmlReport, ShowsTiersApartAndOfManyRanksTheExtremes) {
  RunFolder run = example_folder();
  run.record->mesh.world = 20;
  auto& ranks = run.record->memory.ranks;
  ranks.assign(20, {{"parameters", "device", 1000}, {"optimizer", "host", 1}});
  EXPECT_THAT(html_report(run, kNow), HasSubstr(">each of 20 ranks, device</span>"));
  ranks[7][0].bytes = 1001;
  ranks[9][0].bytes = 999;
  const std::string page = html_report(run, kNow);
  EXPECT_THAT(page, HasSubstr(">rank 7 of 20, the most, device</span>"));
  EXPECT_THAT(page, HasSubstr(">rank 9 of 20, the least, host</span>"));
  EXPECT_THAT(page, Not(HasSubstr(">rank 8")));
}

TEST(HtmlReport, StacksTheTimeOfAStep) {
  RunFolder run = example_folder();
  const std::string plain = html_report(run, kNow);
  EXPECT_THAT(
      plain,
      HasSubstr(R"(<i class="c1"></i>computing and all else</td><td class="number">200 ms)"));
  EXPECT_THAT(plain,
              HasSubstr(R"(<i class="c6"></i>exposed communication</td><td class="number">50 ms)"));
  EXPECT_THAT(plain, HasSubstr("Communication takes 100 ms of a step; 50.0% of it is hidden"));
  for (StepRecord& step : run.metrics.steps) {
    step.phases =
        PhaseTimes{.data_s = 0.01, .forward_s = 0.05, .backward_s = 0.1, .optimizer_s = 0.02};
  }
  const std::string page = html_report(run, kNow);
  EXPECT_THAT(page, HasSubstr(R"(<i class="c2"></i>backward</td><td class="number">100 ms)"));
  EXPECT_THAT(page, HasSubstr(R"(<i class="rest"></i>other</td><td class="number">20 ms)"));
  EXPECT_THAT(page, Not(HasSubstr("computing and all else")));
}

TEST(HtmlReport, CutsAColumnThatWouldHideTheRest) {
  RunFolder run = example_folder();
  run.metrics.steps[0].step_s = 30;
  EXPECT_THAT(html_report(run, kNow),
              HasSubstr("One column is cut at the top; the tallest would be 30 s."));
}

TEST(HtmlReport, TellsChosenValuesFromDefaults) {
  const std::string page = html_report(example_folder(), kNow);
  const size_t fold = page.find("<details id=\"defaults\"><summary>1 defaults</summary>");
  ASSERT_NE(fold, std::string::npos);
  EXPECT_LT(
      page.find(
          "<td><code>mixed_precision</code></td><td><code>bf16</code></td><td>fsdp.yaml:3</td>"),
      fold);
  EXPECT_GT(page.find("<td><code>seed</code></td><td><code>42</code></td>"), fold);
  EXPECT_THAT(page, HasSubstr("<code>fullshard train --data &#39;my corpus.txt&#39;</code>"));
}

TEST(HtmlReport, ReloadsWhileTheRunGoesOn) {
  const std::string page = html_report(example_folder(RunStatus::running), kNow);
  EXPECT_THAT(page, HasSubstr(R"(<meta http-equiv="refresh" content="10">)"));
  EXPECT_THAT(page, HasSubstr(R"(<span class="status running">running</span>)"));
  EXPECT_THAT(page, HasSubstr("Step 4 of 10, about 0:02 left; last update 0:05 ago."));
  EXPECT_THAT(page, HasSubstr(R"(<progress max="10" value="4">)"));
  EXPECT_THAT(html_report(example_folder(), kNow), Not(HasSubstr("http-equiv=\"refresh\"")));
}

TEST(HtmlReport, DoubtsARunThatFellSilent) {
  const std::string page = html_report(example_folder(RunStatus::running), kNow + 3600);
  EXPECT_THAT(page, HasSubstr("nothing was written for 1:00:05: it may have been killed."));
  EXPECT_THAT(page, Not(HasSubstr("http-equiv=\"refresh\"")));
}

TEST(HtmlReport, SaysWhyARunFailed) {
  RunFolder run = example_folder(RunStatus::failed);
  run.record->problem = "rank 1: loss is not finite";
  run.metrics.steps[2].loss = std::nan("");
  const std::string page = html_report(run, kNow);
  EXPECT_THAT(page, HasSubstr("<b>Why it ended</b><pre>rank 1: loss is not finite</pre>"));
  EXPECT_THAT(page, HasSubstr("1 step had a loss that is not finite"));
  EXPECT_THAT(page, HasSubstr("<details id=\"rank-0\" open>"));
}

// Every text that comes from outside carries the same attack; none may arrive as a tag.
TEST(HtmlReport, LetsNoTextFromOutsideAct) {
  const std::string evil =
      "</pre></title><script>alert(1)</script>\"'><img src=x onerror=alert(1)>";
  RunFolder run = example_folder(RunStatus::failed);
  RunRecord& record = *run.record;
  run.path = "runs/" + evil;
  record.problem = record.device = record.model.name = record.model.architecture = evil;
  record.command = record.warnings = record.mesh.hosts = {evil};
  record.versions = {{evil, evil}};
  record.memory.unsharded = {{evil, evil, 5}};
  record.memory.ranks = {{{evil, evil, 5}, {evil, "b", 5}}};
  record.configuration = R"({"</code><script>k</script>":{"value":"<script>v</script>",)"
                         R"("origin":"<script>o</script>","effect":"<script>e</script>"}})";
  run.problems = {evil};
  run.logs[0].lines = {evil};
  const std::string page = html_report(run, kNow);
  size_t scripts = 0;
  for (size_t at = 0; (at = page.find("<script", at)) != std::string::npos; ++at) ++scripts;
  EXPECT_EQ(scripts, 1u);  // the page's own
  EXPECT_THAT(page, Not(HasSubstr("<img")));
  EXPECT_THAT(page, HasSubstr("&lt;script&gt;alert(1)&lt;/script&gt;&quot;&#39;&gt;&lt;img"));
}

TEST(HtmlReport, NeedsNothingFromElsewhere) {
  const std::string page = html_report(example_folder(), kNow);
  EXPECT_THAT(page, Not(HasSubstr("http://")));
  EXPECT_THAT(page, Not(HasSubstr("https://")));
  EXPECT_THAT(page, Not(HasSubstr("url(")));
  EXPECT_THAT(page, Not(HasSubstr("<link")));
  EXPECT_THAT(page,
              HasSubstr("default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-"));
  EXPECT_THAT(page, HasSubstr("@media (prefers-color-scheme: dark)"));
}

TEST(HtmlReport, StaysSmallWhateverARunWrote) {
  RunFolder run = example_folder();
  const std::string noise(10'000, '<');
  run.metrics.steps.clear();
  for (int step = 1; step <= 20'000; ++step) {
    run.metrics.steps.push_back(report_at_step(step));
    run.metrics.steps.back().loss += step % 17;
  }
  run.record->warnings.assign(500, noise);
  run.record->problem = noise;
  run.record->command.assign(200, noise);
  run.logs.assign(16, RankLog{.lines = std::vector<std::string>(40, noise)});
  EXPECT_LT(html_report(run, kNow).size(), 2'000'000u);
}

TEST(HtmlReport, ReadsAnEmptyFolder) {
  TemporaryFolder folder;
  const WrittenReport written = write_html_report(folder.path());
  EXPECT_EQ(written.path, folder.file("report.html"));
  EXPECT_FALSE(written.is_live);
  const std::string page = read_file(written.path);
  EXPECT_THAT(
      page,
      HasSubstr("There is no readable run.json in this folder, and no step has been recorded."));
  EXPECT_THAT(page, HasSubstr("nothing to draw yet"));
}

TEST(HtmlReport, ReadsARunThatIsBeingWritten) {
  TemporaryFolder folder;
  write_run_record(folder.file("run.json"), *example_folder(RunStatus::running).record);
  std::ofstream(folder.file("metrics.jsonl"))
      << to_json_line(report_at_step(1)) << "\nnonsense\n"
      << to_json_line(report_at_step(2)) << "\n{\"step\":3,";
  const WrittenReport written = write_html_report(folder.path(), folder.file("page.html"));
  EXPECT_EQ(written.path, folder.file("page.html"));
  EXPECT_TRUE(written.is_live);
  const std::string page = read_file(folder.file("page.html"));
  EXPECT_THAT(page, HasSubstr("Step 2 of 10"));
  EXPECT_THAT(page, HasSubstr("metrics.jsonl:2: is not valid JSON at column 2; remove the line"));
  EXPECT_THAT(page, HasSubstr("metrics.jsonl: 1 line left out of this page"));
}

TEST(HtmlReport, GoesOnWithoutAReadableRecord) {
  TemporaryFolder folder;
  std::ofstream(folder.file("run.json")) << "{\"status\":";
  std::ofstream(folder.file("metrics.jsonl")) << to_json_line(report_at_step(1)) << "\n";
  write_html_report(folder.path());
  const std::string page = read_file(folder.file("report.html"));
  EXPECT_THAT(
      page,
      HasSubstr("run.json: is not valid JSON at column 11; was it written by another program?"));
  EXPECT_THAT(page, HasSubstr("<dt>loss</dt><dd>4.0000"));
}

TEST(HtmlReport, NamesAFolderThatIsNotThere) {
  try {
    write_html_report("/nowhere/run");
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "report: '/nowhere/run' is not a folder; give the --output folder of a run");
    EXPECT_EQ(error.exit_status(), 4);
  }
}

TEST(RunFolder, ReadsTheLastLinesOfEachRank) {
  TemporaryFolder folder;
  const std::string logs = folder.file("logs");
  ASSERT_EQ(::mkdir(logs.c_str(), 0755), 0);
  std::ofstream long_log(logs + "/rank-10.log");
  for (int i = 0; i < 10'000; ++i) long_log << "line " << i << "\n";
  long_log.close();
  std::ofstream(logs + "/rank-2.log") << "one\ntwo";
  std::ofstream(logs + "/rank-x.log") << "not a rank's";
  const RunFolder run = read_run_folder(folder.path());
  for (const auto& name : entries_of(logs)) ::unlink((logs + "/" + name).c_str());
  ::rmdir(logs.c_str());
  ASSERT_EQ(run.logs.size(), 2u);
  EXPECT_EQ(run.logs[0].rank, 2);
  EXPECT_THAT(run.logs[0].lines, ::testing::ElementsAre("one", "two"));
  EXPECT_FALSE(run.logs[0].has_more);
  EXPECT_EQ(run.logs[1].rank, 10);
  EXPECT_EQ(run.logs[1].lines.size(), 40u);
  EXPECT_EQ(run.logs[1].lines.back(), "line 9999");
  EXPECT_TRUE(run.logs[1].has_more);
}

}  // namespace
}  // namespace fullshard::report
