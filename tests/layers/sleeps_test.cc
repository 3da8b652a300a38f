// SPDX-License-Identifier: Apache-2.0
// A case that sleeps for more than a second is slow, and says so: its suite ends in Slow, which
// ctest runs apart (label slow).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

namespace fullshard::layers {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Seconds of the system's own calls, and of a shell's. A shell that sleeps for a minute or more
// waits to be ended by somebody.
double system_seconds(const std::string& line) {
  static const std::regex call(R"(\b(u?sleep)(?:\(| )([0-9][0-9'.]*))");
  std::smatch match;
  if (!std::regex_search(line, match, call)) return 0;
  std::string digits = match[2];
  std::erase(digits, '\'');
  if (match[1] == "usleep") return std::stod(digits) / 1e6;
  return std::stod(digits) < 60 ? std::stod(digits) : 0;
}

// Seconds of a call such as sleep_for(std::chrono::seconds(3)) or sleep_for(3s); 0 without one.
double slept_seconds(const std::string& line) {
  if (line.find("sleep_for(") == std::string::npos) return system_seconds(line);
  static const std::regex call(
      R"(sleep_for\((?:std::)?(?:chrono::)?([a-z]*)\(?([0-9']+)(ms|us|s)?\b)");
  std::smatch match;
  if (!std::regex_search(line, match, call)) return 0;
  std::string digits = match[2];
  std::erase(digits, '\'');
  const std::string unit = match[1].length() > 0 ? match[1] : match[3];
  if (unit == "seconds" || unit == "s") return std::stod(digits);
  return unit == "milliseconds" || unit == "ms" ? std::stod(digits) / 1e3 : 0;
}

// Lines of a source that sleep for more than a second in a suite that is not called slow.
std::vector<std::string> hidden_sleeps(std::istream& source) {
  static const std::regex begins(R"(^TEST(?:_F|_P)?\((\w+),.*)");
  std::vector<std::string> found;
  std::string suite;
  for (std::string line; std::getline(source, line);) {
    std::smatch match;
    if (line.starts_with("TEST") && std::regex_match(line, match, begins)) suite = match[1];
    if (slept_seconds(line) > 1 && !suite.ends_with("Slow")) found.push_back(suite + ": " + line);
  }
  return found;
}

TEST(Sleeps, AreFoundInASource) {
  std::istringstream source(R"(TEST(Quick, Waits) {
  std::this_thread::sleep_for(std::chrono::milliseconds(1000));
  std::this_thread::sleep_for(std::chrono::seconds(3));
  std::this_thread::sleep_for(milliseconds(1'500));
  std::this_thread::sleep_for(30s);
  std::this_thread::sleep_for(20ms);
  ::usleep(2'000'000);
  ::usleep(2000);
  shell("trap '' TERM; sleep 2; exit 3");
  shell("until [ -e ready ]; do sleep 0.02; done; exec sleep 100");
TEST_F(PatienceSlow, Waits) {
  std::this_thread::sleep_for(std::chrono::seconds(3));
)");
  EXPECT_THAT(
      hidden_sleeps(source),
      ElementsAre("Quick:   std::this_thread::sleep_for(std::chrono::seconds(3));",
                  "Quick:   std::this_thread::sleep_for(milliseconds(1'500));",
                  "Quick:   std::this_thread::sleep_for(30s);", "Quick:   ::usleep(2'000'000);",
                  "Quick:   shell(\"trap '' TERM; sleep 2; exit 3\");"));
}

TEST(Sleeps, OfMoreThanASecondAreInSlowSuites) {
  const auto folder = std::filesystem::path(FULLSHARD_SOURCE_ROOT) / "tests";
  int num_sources = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (!name.ends_with("_test.cc") || name == "sleeps_test.cc") continue;
    std::ifstream file(entry.path());
    EXPECT_THAT(hidden_sleeps(file), IsEmpty()) << entry.path();
    ++num_sources;
  }
  EXPECT_GT(num_sources, 150);
}

}  // namespace
}  // namespace fullshard::layers
