// SPDX-License-Identifier: Apache-2.0
#include "fullshard/base/json_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fullshard::base {
namespace {

using ::testing::HasSubstr;

std::string nested(int depth, const std::string& open = "[", const std::string& close = "]") {
  std::string text;
  for (int i = 0; i < depth; ++i) text += open;
  text += "1";
  for (int i = 0; i < depth; ++i) text += close;
  return text;
}

std::string refusal(const std::string& text) {
  try {
    parse_json(text);
  } catch (const JsonError& error) {
    EXPECT_EQ(error.kind(), ErrorKind::input);
    return error.what();
  }
  return "";
}

TEST(JsonText, GivesTheValueInTheTypeAskedFor) {
  EXPECT_EQ(parse_json(R"({"b": [1, "x"], "a": null})").dump(), R"({"a":null,"b":[1,"x"]})");
  EXPECT_EQ(parse_json<nlohmann::ordered_json>(R"({"b": 1, "a": 2})").dump(), R"({"b":1,"a":2})");
}

TEST(JsonText, NestsToALimitAndNoFurther) {
  EXPECT_EQ(parse_json(nested(100)).dump(), nested(100));
  EXPECT_EQ(refusal(nested(101)), "is nested more than 100 deep at column 101");
  EXPECT_EQ(refusal(nested(100'000)), "is nested more than 100 deep at column 101");
  EXPECT_EQ(refusal(nested(100'000, "{\"a\":\n", "}")),
            "is nested more than 100 deep at line 101, column 1");
  EXPECT_EQ(refusal(std::string(100'000, '[')),  // it never ends
            "is nested more than 100 deep at column 101");
}

TEST(JsonText, BracketsInStringsAndSideBySideDoNotNest) {
  const std::string brackets(1000, '[');
  EXPECT_EQ(parse_json("[\"\\\"" + brackets + "\"]")[0], "\"" + brackets);
  std::string flat = "[[]";
  for (int i = 0; i < 1000; ++i) flat += ",[{}]";
  EXPECT_EQ(parse_json(flat + "]").size(), 1001u);
}

TEST(JsonText, RefusesAKeyThatAnObjectHasTwice) {
  EXPECT_EQ(refusal(R"({"prompt": 1, "prompt": 2})"),
            "has the key \"prompt\" twice, again at column 15");
  EXPECT_EQ(refusal("{\"a\": [{\"b\": {}, \"c\": 1,\n \"b\" : 2}]}"),
            "has the key \"b\" twice, again at line 2, column 2");
  EXPECT_EQ(refusal(R"({"ab": 1, "\u0061b": 2})"), "has the key \"ab\" twice, again at column 11");
  EXPECT_EQ(refusal(R"({"\u001b": 1, "\u001b": 2})"),
            "has the key \"\\x1b\" twice, again at column 15");
  std::string many = "{";
  for (int i = 0; i < 100'000; ++i) many += "\"k" + std::to_string(i) + "\": 1, ";
  EXPECT_EQ(parse_json(many + "\"last\": 1}").size(), 100'001u);
  EXPECT_THAT(refusal(many + "\"k77777\": 1}"), HasSubstr("has the key \"k77777\" twice"));
}

TEST(JsonText, ObjectsSideBySideAndStringsMayHaveTheSameKeys) {
  const std::string text = R"([{"a":{"a":1},"b":"\"a\":"},{"a":["a","b"],"b":2},{"\\a":3,"a":4}])";
  EXPECT_EQ(parse_json<nlohmann::ordered_json>(text).dump(), text);
}

TEST(JsonText, SaysWhereItIsWrongAndShowsNothingOfIt) {
  EXPECT_EQ(refusal("{\"a\": 1,\n \"b\" 2}"), "is not valid JSON at line 2, column 6");
  EXPECT_EQ(refusal(""), "is not valid JSON at column 1");
  EXPECT_EQ(refusal("{\"a\x1b[2J"), "is not valid JSON at column 4");
  EXPECT_EQ(refusal("[1e999]"), "holds a number beyond the range of fp64");
  EXPECT_EQ(refusal("[\"\xff\"]"), "is not valid JSON at column 3");
}

}  // namespace
}  // namespace fullshard::base
