// SPDX-License-Identifier: Apache-2.0
// The page in a browser: the work of its script, and its light and dark colours.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "fullshard/report/comparison_page.h"
#include "fullshard/report/html_report.h"
#include "tests/files.h"
#include "tests/launch/shell.h"

namespace fullshard::report {
namespace {

using fullshard::testing::read_file;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr double kBrowserNow = 1'900'000'000;

std::string find_browser() {
  for (const char* name : {"chromium", "chromium-browser", "google-chrome"}) {
    if (launch::shell(std::string("command -v ") + name).status == 0) return name;
  }
  return {};
}

RunFolder drawn_run(const std::string& name, double factor) {
  RunFolder run;
  run.path = name;
  run.record.emplace();
  run.record->status = RunStatus::finished;
  for (int64_t step = 1; step <= 300; ++step) {
    StepRecord record{.step = step, .loss = factor * std::exp(-static_cast<double>(step) / 50)};
    record.lr = 0.001;
    record.grad_norm = factor;
    record.tokens_per_s = 1000 * factor;
    record.step_s = 0.1;
    run.metrics.steps.push_back(record);
  }
  return run;
}

class Browser : public ::testing::Test {
 protected:
  Browser() : browser_(find_browser()) {}
  void SetUp() override {
    if (browser_.empty()) {
      GTEST_SKIP() << "neither chromium nor google-chrome is in PATH (scripts/setup.sh chromium)";
    }
  }

  // The document as it is after its scripts have run.
  std::string shown(const std::string& page, const std::string& flags = "") const {
    folder_.write("page.html", page);
    return launch::shell("timeout 100 " + browser_ + " --headless --no-sandbox --disable-gpu " +
                         flags + " --user-data-dir=" + folder_ / "profile" + " --dump-dom file://" +
                         folder_ / "page.html" + " 2>/dev/null")
        .output;
  }
  // The same page with a script of the test, which the page itself would not let run.
  std::string shown_with(std::string page, const std::string& script,
                         const std::string& flags = "") const {
    const std::string policy = "http-equiv=\"Content-Security-Policy\"";
    page.replace(page.find(policy), policy.size(), "name=\"policy\"");
    page.insert(page.rfind("</body>"),
                "<script>const said = [];" + script +
                    "document.title = 'said: ' + said.join(' | ');</script>");
    const std::string document = shown(page, flags);
    const size_t begin = document.find("<title>said: ");
    if (begin == std::string::npos) return "no title in: " + document;
    return document.substr(begin + 13, document.find("</title>") - begin - 13);
  }

  const std::string touch_ = R"(
    const plot = document.querySelector('.plot'), box = plot.getBoundingClientRect();
    const touch = (kind, share) => plot.dispatchEvent(new PointerEvent(kind,
        { clientX: box.left + share * box.width, clientY: box.top + 9, button: 0 }));
    const labels = kind => [...plot.querySelectorAll(kind)].map(label => label.textContent).join(' ');
    const choose = (index, value) => { const select = document.querySelectorAll('.controls select')[index];
      select.value = value; select.dispatchEvent(new Event('change')); };
  )";
  std::string browser_;
  launch::TemporaryFolder folder_;
};

TEST_F(Browser, RunsThePagesOwnScriptAndNoOther) {
  std::string page = html_report(drawn_run("one", 4), kBrowserNow);
  page.insert(page.rfind("</body>"), "<script>document.title = 'foreign';</script>");
  const std::string document = shown(page);
  EXPECT_THAT(document, HasSubstr("<div class=\"controls\">"));
  EXPECT_THAT(document, HasSubstr("<title>one</title>"));
  EXPECT_THAT(document, Not(HasSubstr("<title>foreign")));
}

TEST_F(Browser, ShowsTheValuesOfAllRunsUnderThePointer) {
  const std::string page = html_comparison({drawn_run("one", 4), drawn_run("two", 8)}, kBrowserNow);
  EXPECT_EQ(shown_with(page, touch_ + R"(
      touch('pointermove', 0); said.push(plot.querySelector('.tip').textContent.replaceAll('\n', ', '));
      touch('pointerleave', 0); said.push(plot.querySelectorAll('.tip').length); )"),
            "step 1, one 3.92079, two 7.84159 | 0");
}

TEST_F(Browser, ZoomsIntoWhatIsDraggedOverAndBack) {
  const std::string page = html_report(drawn_run("one", 4), kBrowserNow);
  EXPECT_EQ(shown_with(page, touch_ + R"(
      touch('pointerdown', 0.5); touch('pointermove', 0.7); touch('pointerup', 0.7);
      said.push(labels('.across'));
      plot.dispatchEvent(new MouseEvent('dblclick'));
      said.push(labels('.across')); )"),
            "160 170 180 190 200 210 | 50 100 150 200 250 300");
}

TEST_F(Browser, DrawsOtherAxes) {
  const std::string page = html_report(drawn_run("one", 4), kBrowserNow);
  EXPECT_EQ(shown_with(page, touch_ + R"(
      const title = document.querySelector('figcaption b');
      said.push(title.textContent);
      choose(0, 'linear'); said.push(title.textContent); said.push(labels('.up'));
      choose(0, 'log'); said.push(labels('.up'));
      choose(1, 'log'); said.push(labels('.across')); )"),
            "Loss over steps, logarithmic | Loss over steps | 0 1 2 3 4 | 0.01 0.02 0.05 0.1 0.2 "
            "0.5 1 2 5 | 1 2 5 10 20 50 100 200");
}

TEST_F(Browser, SmoothsEveryRunOfAComparison) {
  const std::string page = html_comparison({drawn_run("one", 4), drawn_run("two", 8)}, kBrowserNow);
  EXPECT_EQ(shown_with(page, touch_ + R"(
      const slider = document.querySelector('.controls input');
      const paths = () => [...plot.querySelectorAll('path:not(.grid)')].map(path => path.getAttribute('class')).join(', ');
      slider.value = 90; slider.dispatchEvent(new Event('input')); said.push(paths());
      touch('pointermove', 1); said.push(plot.querySelector('.tip').textContent.split('\n').length);
      slider.value = 0; slider.dispatchEvent(new Event('input')); said.push(paths()); )"),
            "faint c1, line c1, faint c2, line c2 | 5 | line c1, line c2");
}

TEST_F(Browser, FollowsTheSystemsColours) {
  const std::string page = html_report(drawn_run("one", 4), kBrowserNow);
  const std::string ask = "said.push(getComputedStyle(document.body).backgroundColor);";
  EXPECT_EQ(shown_with(page, ask, "--blink-settings=preferredColorScheme=1"), "rgb(249, 249, 247)");
  EXPECT_EQ(shown_with(page, ask, "--blink-settings=preferredColorScheme=0"), "rgb(17, 17, 16)");
}

}  // namespace
}  // namespace fullshard::report
