// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <random>

#include "fullshard/config/document/reader.h"
#include "fullshard/config/plan.h"
#include "tests/config/fixtures.h"

namespace fullshard::config {
namespace {

// Valid files with bytes changed, removed, repeated and inserted.
class Mangler {
 public:
  explicit Mangler(std::vector<std::string> seeds) : seeds_(std::move(seeds)) {}

  std::string next() {
    std::string text = seeds_[random_() % seeds_.size()];
    const size_t times = 1 + random_() % 8;
    for (size_t i = 0; i < times; ++i) mangle(text);
    return text;
  }

 private:
  void mangle(std::string& text) {
    static constexpr std::string_view kPieces[] = {
        "{",     "}",       "[",        "]",        ":",    ",",    "\"",       "\\",
        "\\u12", "\\ud83d", "#",        "//",       "/*",   "*/",   "\n",       "\t",
        "- ",    "&a ",     "*a",       "!!x ",     "<<: ", "|\n",  "? ",       "---\n",
        "1e999", "-",       "\xE2\x80", "\xD8\x8C", "\xFF", "null", "{{{{{{{{", "[[[[[[[[",
        "'",     "%",       "@",        "`",        ">-\n", "0x"};
    if (text.empty()) text = "{";
    const size_t at = random_() % text.size();
    const size_t length = std::min<size_t>(text.size() - at, random_() % 40);
    switch (random_() % 5) {
      case 0:
        text[at] = static_cast<char>(random_());
        break;
      case 1:
        text.erase(at, length);
        break;
      case 2:
        text.insert(at, text.substr(at, length));
        break;
      case 3:
        text.insert(at, seeds_[random_() % seeds_.size()].substr(0, length));
        break;
      default:
        text.insert(at, kPieces[random_() % std::size(kPieces)]);
    }
  }

  std::vector<std::string> seeds_;
  std::mt19937 random_{20261115};
};

using Clock = std::chrono::steady_clock;

// A fixed number of texts, not a time limit: the same ones on every machine, however busy it is.
constexpr int64_t kTexts = 2000;

// FULLSHARD_FUZZ_SECONDS makes it continue for that long.
Clock::duration time_to_spend() {
  const char* seconds = std::getenv("FULLSHARD_FUZZ_SECONDS");
  return std::chrono::duration_cast<Clock::duration>(
      std::chrono::duration<double>(seconds != nullptr ? std::atof(seconds) : 0));
}

// Both readers, whatever the text looks like: no crash, no exception, and a tree or a problem.
TEST(Fuzz, ReadersAnswerWithATreeOrAProblem) {
  const FixtureFolder folder("good");
  std::vector<std::string> seeds;
  for (const std::string& file : folder.files()) seeds.push_back(read_text(file));
  Mangler mangler(std::move(seeds));
  const auto end = Clock::now() + time_to_spend();
  for (int64_t round = 0; round < kTexts || Clock::now() < end; ++round) {
    const std::string text = mangler.next();
    ASSERT_NO_THROW({
      for (const auto read : {read_json, read_yaml}) {
        Problems problems;
        const auto tree = read(text, "fuzz", problems);
        ASSERT_TRUE(tree || !problems.ok()) << text;
      }
      const PlanReading reading = read_plan(text, "fuzz");
      ASSERT_TRUE(reading.plan.settings() != nullptr || !reading.problems.ok()) << text;
    }) << text;
  }
}

}  // namespace
}  // namespace fullshard::config
