// SPDX-License-Identifier: Apache-2.0
#include "fullshard/report/comparison_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "fullshard/base/error.h"
#include "tests/errors.h"
#include "tests/files.h"

namespace fullshard::report {
namespace {

using fullshard::testing::message_of;
using fullshard::testing::TemporaryFolder;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr double kComparedAt = 1'900'000'000;

RunFolder compared_run(const std::string& path, double lr) {
  RunFolder run;
  run.path = path;
  run.record.emplace();
  run.record->status = RunStatus::finished;
  run.record->configuration = R"({"optimizer.params.lr": {"value": )" + std::to_string(lr) +
                              R"(, "origin": "flag"}, "bf16.enabled": {"value": true}})";
  run.record->mesh.world = 2;
  run.metrics.steps = {{.step = 1, .loss = lr, .lr = lr, .tokens = 100},
                       {.step = 2, .loss = lr / 2, .lr = lr, .tokens = 100}};
  run.metrics.steps.back().eval_loss = 0.75;
  return run;
}

TEST(Comparison, LaysCurvesOverEachOther) {
  const std::string page =
      html_comparison({compared_run("runs/a", 0.5), compared_run("runs/b", 0.25)}, kComparedAt);
  EXPECT_THAT(page, HasSubstr("<title>a, b</title>"));
  EXPECT_THAT(page, HasSubstr(R"(data-name="a" data-values="1 0.5 2 0.25")"));
  EXPECT_THAT(page, HasSubstr(R"(data-name="b" data-values="1 0.25 2 0.125")"));
  EXPECT_THAT(page, HasSubstr("<b>Evaluation loss over steps</b>"));
  EXPECT_THAT(page, HasSubstr("<tr><td>last loss</td><td class=\"number\">0.2500</td>"
                              "<td class=\"number\">0.1250</td></tr>"));
  EXPECT_THAT(page, Not(HasSubstr("MFU, median")));  // no run has one
}

TEST(Comparison, ListsTheSettingsThatDifferOnly) {
  const std::string page =
      html_comparison({compared_run("a", 0.5), compared_run("b", 0.25)}, kComparedAt);
  EXPECT_THAT(page, HasSubstr("<tr><td><code>optimizer.params.lr</code></td><td><code>0.5</code>"
                              "</td><td><code>0.25</code></td></tr>"));
  EXPECT_THAT(page, Not(HasSubstr("<code>bf16.enabled</code>")));
  EXPECT_THAT(page, Not(HasSubstr("<code>ranks</code>")));
  EXPECT_THAT(html_comparison({compared_run("a", 0.5), compared_run("b", 0.5)}, kComparedAt),
              HasSubstr("<p class=\"note\">None.</p>"));
}

TEST(Comparison, ShowsTheArgumentsThatDiffer) {
  const std::string data = std::string(300, 'd') + ".txt";
  RunFolder first = compared_run("a", 0.5), second = compared_run("b", 0.5);
  first.record->command = {"fullshard", "train", "--data", data, "--lr", "-1", "--output=a", "-q"};
  second.record->command = {"fullshard", "train",    "--data", data,       "--lr",
                            "-1",        "--output", "b",      "--resume", "auto"};
  const std::string page = html_comparison({first, second}, kComparedAt);
  EXPECT_THAT(page, HasSubstr("<tr><td><code>command --output</code></td><td><code>a</code></td>"
                              "<td><code>b</code></td></tr>"));
  EXPECT_THAT(page, HasSubstr("<tr><td><code>command --resume</code></td>"
                              "<td class=\"effect\">not set</td><td><code>auto</code></td></tr>"));
  EXPECT_THAT(page, HasSubstr("<tr><td><code>command -q</code></td><td><code>given</code></td>"
                              "<td class=\"effect\">not set</td></tr>"));
  EXPECT_THAT(page, Not(HasSubstr("<code>command</code>")));
  EXPECT_THAT(page, Not(HasSubstr("command --data")));
  EXPECT_THAT(page, Not(HasSubstr("command --lr")));
}

TEST(Comparison, ShowsLongValuesFromWhereTheyDiffer) {
  const std::string front(300, 'd');
  RunFolder first = compared_run("a", 0.5), second = compared_run("b", 0.5);
  first.record->command = {"fullshard", "train", "--data", front + "one"};
  second.record->command = {"fullshard", "train", "--data", front + "two"};
  const std::string shared = "\xE2\x80\xA6" + std::string(20, 'd');
  EXPECT_THAT(
      html_comparison({first, second}, kComparedAt),
      HasSubstr("<td><code>" + shared + "one</code></td><td><code>" + shared + "two</code></td>"));
}

TEST(Comparison, PassesOverDefaultsThatAnotherFileHasNoWordFor) {
  RunFolder other = compared_run("b", 0.5);
  other.record->configuration = R"({"fsdp_config.fsdp_version": {"value": 2, "origin": "default"},
    "mixed_precision": {"value": "bf16", "origin": "acc.yaml:3"}})";
  const std::string page = html_comparison({compared_run("a", 0.5), other}, kComparedAt);
  EXPECT_THAT(page, Not(HasSubstr("fsdp_version")));
  EXPECT_THAT(page, HasSubstr("<code>mixed_precision</code></td><td class=\"effect\">not set</td>"
                              "<td><code>bf16</code></td>"));
}

TEST(Comparison, TellsRunsOfOneNameApartByTheirPaths) {
  const std::string page =
      html_comparison({compared_run("x/run", 0.5), compared_run("y/run", 0.5)}, kComparedAt);
  EXPECT_THAT(page, HasSubstr("<title>x/run, y/run</title>"));
}

TEST(Comparison, LetsNoTextFromOutsideAct) {
  RunFolder evil = compared_run("a", 1);
  evil.path = "<script>alert(1)</script>";
  evil.record->configuration = R"({"<img src=x>": {"value": "<b onload=x>"}})";
  const std::string page = html_comparison({evil, compared_run("b", 1)}, kComparedAt);
  EXPECT_THAT(page, Not(HasSubstr("<script>alert")));
  EXPECT_THAT(page, Not(HasSubstr("<img")));
  EXPECT_THAT(page, Not(HasSubstr("<b onload")));
}

TEST(Comparison, StandsRunsThatHaveNothingYet) {
  TemporaryFolder first, second;
  const WrittenComparison written =
      write_html_comparison({first.path(), second.path()}, first.file("page.html"));
  EXPECT_THAT(fullshard::testing::read_file(written.path), HasSubstr("nothing to draw yet"));
  const auto json = nlohmann::json::parse(comparison_json(written));
  EXPECT_EQ(json["runs"].size(), 2U);
  EXPECT_EQ(json["runs"][1]["folder"], second.path());
  EXPECT_EQ(json["page"], first.file("page.html"));
}

TEST(Comparison, HasAsManyRunsAsColours) {
  const std::vector<RunFolder> seven(7, compared_run("a", 1));
  EXPECT_THAT(message_of([&] { html_comparison(seven, kComparedAt); }),
              HasSubstr("7 runs to compare, expected 2 to 6"));
}

}  // namespace
}  // namespace fullshard::report
