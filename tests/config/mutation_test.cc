// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>
#include <regex>

#include "fullshard/config/convert.h"
#include "fullshard/config/plan.h"
#include "tests/config/fixtures.h"

namespace fullshard::config {
namespace {

struct KeySpan {
  size_t begin;
  size_t size;
};

std::vector<KeySpan> keys_in(const std::string& text, bool is_json) {
  static const std::regex json_key(R"re("([A-Za-z0-9_]+)"\s*:)re");
  static const std::regex yaml_key(R"re((?:^|\n)[ ]*([A-Za-z0-9_]+):)re");
  std::vector<KeySpan> keys;
  const std::regex& pattern = is_json ? json_key : yaml_key;
  for (std::sregex_iterator it(text.begin(), text.end(), pattern), end; it != end; ++it) {
    keys.push_back({static_cast<size_t>(it->position(1)), static_cast<size_t>(it->length(1))});
  }
  return keys;
}

std::string effective(const Plan& plan) {
  std::string text = to_json_document(*plan.settings());
  if (plan.deepspeed() != nullptr) text += to_json_document(*plan.deepspeed());
  return text;
}

// Some positions of every key of every valid file, each replaced by another character; all of them
// when FULLSHARD_FUZZ_SECONDS asks for a long run.
TEST(Mutation, OfAKeyIsNeverSilentlyAccepted) {
  const FixtureFolder folder("good");
  std::mt19937 random(7);
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz_0123456789ABXYZ";
  const bool is_long = std::getenv("FULLSHARD_FUZZ_SECONDS") != nullptr;
  int tried = 0;
  for (const std::string& file : folder.files()) {
    const std::string text = read_text(file);
    const std::string before = effective(read_plan(text, file).plan);
    for (const KeySpan& key : keys_in(text, file.ends_with(".json"))) {
      for (size_t i = is_long ? 0 : random() % 4; i < key.size; i += is_long ? 1 : 4) {
        std::string changed = text;
        char& letter = changed[key.begin + i];
        const char old = letter;
        while (letter == old) letter = kLetters[random() % kLetters.size()];
        const PlanReading reading = read_plan(changed, file);
        ++tried;
        if (!reading.problems.ok()) continue;
        EXPECT_NE(effective(reading.plan), before)
            << file << ": " << changed.substr(key.begin, key.size);
      }
    }
  }
  EXPECT_GT(tried, 1500);
}

}  // namespace
}  // namespace fullshard::config
