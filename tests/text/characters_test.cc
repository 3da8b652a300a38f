// SPDX-License-Identifier: Apache-2.0
// Normal forms and lower-case letters of every character, and of characters in a row, compared with
// the Python package's (tests/fixtures/text/make_characters.py).
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "fullshard/base/sha256.h"
#include "fullshard/text/unicode/normal_forms.h"
#include "fullshard/text/unicode/unicode.h"
#include "fullshard/text/unicode/utf8.h"
#include "tests/text/fixtures.h"

namespace fullshard::testing {
namespace {

std::vector<std::string> every_character() {
  std::vector<std::string> all;
  for (uint32_t character = 0; character < 0x110000; ++character) {
    if (character >= 0xD800 && character < 0xE000) continue;
    text::append_utf8(all.emplace_back(), character);
  }
  return all;
}

// The same rows as in the script, by the same simple generator.
class Rows {
 public:
  std::vector<std::string> make() {
    std::vector<std::string> all(20000);
    for (auto& row : all) {
      for (uint32_t left = 1 + draw(8); left > 0; --left) {
        const auto& [begin, length] = kRanges[draw(std::size(kRanges))];
        text::append_utf8(row, begin + draw(length));
      }
    }
    return all;
  }

 private:
  static constexpr std::pair<uint32_t, uint32_t> kRanges[] = {
      {0x41, 58},     {0x300, 112},    {0x900, 1280}, {0x1100, 256},  {0x1E00, 512},
      {0x3000, 1024}, {0xAC00, 11172}, {0xF900, 592}, {0x1D100, 256},
  };

  uint32_t draw(uint64_t limit) {
    state_ = state_ * 6364136223846793005U + 1442695040888963407U;
    return static_cast<uint32_t>((state_ >> 33) % limit);
  }

  uint64_t state_ = 1;
};

template <class Change>
std::string digest_of_lines(const std::vector<std::string>& texts, const Change& change) {
  std::string lines;
  for (const auto& text : texts) lines += change(text) + '\n';
  std::string digest;
  for (const uint8_t byte : base::sha256(lines)) digest += fmt::format("{:02x}", byte);
  return digest;
}

void expect_as_recorded(const std::vector<std::string>& texts, const std::string& name) {
  const auto recorded = nlohmann::json::parse(read_file(fixture("characters.json"))).at(name);
  const std::pair<const char*, text::NormalForm> forms[] = {{"NFC", text::NormalForm::nfc},
                                                            {"NFD", text::NormalForm::nfd},
                                                            {"NFKC", text::NormalForm::nfkc},
                                                            {"NFKD", text::NormalForm::nfkd}};
  for (const auto& [kind, form] : forms) {
    const auto change = [form](const auto& text) { return text::to_normal_form(text, form); };
    EXPECT_EQ(digest_of_lines(texts, change), recorded.at(kind).get<std::string>()) << kind;
  }
  EXPECT_EQ(digest_of_lines(texts, [](const auto& text) { return text::lowercase(text); }),
            recorded.at("Lowercase").get<std::string>());
}

TEST(Characters, HaveTheFormsOfThePythonPackage) {
  expect_as_recorded(every_character(), "every_character");
}

TEST(Characters, InARowHaveTheFormsOfThePythonPackage) {
  expect_as_recorded(Rows().make(), "rows");
}

}  // namespace
}  // namespace fullshard::testing
