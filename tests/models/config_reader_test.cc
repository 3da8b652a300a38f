// SPDX-License-Identifier: Apache-2.0
#include "fullshard/models/common/config_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "fullshard/base/error.h"

namespace fullshard::models {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;

ConfigReader reader_of(const json& config) { return {config, "config.json", "Model"}; }

std::string problems_of(ConfigReader& reader) {
  try {
    reader.finish();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::input);
    return error.what();
  }
  return {};
}

TEST(ConfigReader, GivesValuesAndDefaults) {
  const json config = {
      {"width", 8}, {"rate", 1}, {"on", true}, {"kind", "a"}, {"list", {"x", "y"}}};
  auto reader = reader_of(config);
  EXPECT_EQ(reader.integer("width", 3), 8);
  EXPECT_EQ(reader.positive("height", 3), 3);
  EXPECT_EQ(reader.number("rate", 0.5), 1.0);
  EXPECT_EQ(reader.probability("drop", 0.25), 0.25);
  EXPECT_TRUE(reader.flag("on", false));
  EXPECT_EQ(reader.text("kind", "b"), "a");
  EXPECT_THAT(reader.texts("list"), ElementsAre("x", "y"));
  EXPECT_EQ(problems_of(reader), "");
}

TEST(ConfigReader, NullIsAbsentButForOptionalIntegers) {
  const json config = {{"width", nullptr}, {"window", nullptr}};
  auto reader = reader_of(config);
  EXPECT_EQ(reader.integer("width", 3), 3);
  EXPECT_FALSE(reader.has("width"));
  EXPECT_EQ(reader.optional_integer("window", 4096), std::nullopt);
  EXPECT_EQ(reader.optional_integer("other", 4096), 4096);
  EXPECT_EQ(problems_of(reader), "");
}

TEST(ConfigReader, TakesTheNameThatTheFileHas) {
  const json config = {{"n_embd", 8}};
  const auto reader = reader_of(config);
  EXPECT_EQ(reader.one_of({"n_embd", "hidden_size"}), "n_embd");
  EXPECT_EQ(reader.one_of({"hidden_size", "n_embd"}), "n_embd");
  EXPECT_EQ(reader.one_of({"n_head", "num_heads"}), "num_heads");
}

TEST(ConfigReader, TellsAllProblemsAtOnce) {
  const json config = {{"width", "wide"},
                       {"height", 0},
                       {"rate", true},
                       {"drop", 1.0},
                       {"on", 1},
                       {"kind", 5},
                       {"list", {1}},
                       {"inner", {{"a", 1}, {"b", 2}}},
                       {"outer", 3},
                       {"norm", "post"},
                       {"heihgt", 2},
                       {"is_decoder", true},
                       {"exotic_option", {{"x", 1}}}};
  auto reader = reader_of(config);
  reader.integer("width", 1);
  reader.positive("height", 1);
  reader.number("rate", 1);
  reader.probability("drop", 0);
  reader.flag("on", false);
  reader.text("kind", "");
  reader.texts("list");
  auto inner = reader.section("inner");
  EXPECT_EQ(inner.integer("a", 0), 1);
  inner.refuse_unread();
  EXPECT_EQ(reader.section("outer").integer("a", 7), 7);
  reader.supports_only("norm", "pre");
  EXPECT_EQ(problems_of(reader),
            "config.json: no Model can be made of it:\n"
            "  width is \"wide\": expected an integer\n"
            "  height is 0: expected an integer above 0\n"
            "  rate is true: expected a number\n"
            "  drop is 1.0: expected a number from 0 to below 1\n"
            "  on is 1: expected true or false\n"
            "  kind is 5: expected a text\n"
            "  list is [1]: expected a list of texts\n"
            "  inner.b is 2: unknown\n"
            "  outer is 3: expected an object\n"
            "  norm is \"post\": only \"pre\" is supported\n"
            "  exotic_option is {\"x\":1}: unknown\n"
            "  heihgt is 2: unknown; did you mean height?\n"
            "  is_decoder is true: unknown");
}

TEST(ConfigReader, KnowsWhatChangesNothing) {
  const json config = {{"torch_dtype", "float16"},
                       {"dtype", "float16"},
                       {"use_cache", true},
                       {"id2label", {{"0", "A"}}},
                       {"task_specific_params", {{"x", 1}}},
                       {"_name_or_path", "somewhere"},
                       {"eos_token_id", {1, 2}},
                       {"pruned_heads", json::object()},
                       {"is_decoder", false},
                       {"exotic_option", nullptr},
                       {"summary", 5}};
  auto reader = reader_of(config);
  reader.harmless({"summary"});
  EXPECT_EQ(problems_of(reader), "");
}

TEST(ConfigReader, RefusesWhatIsNoObject) {
  try {
    reader_of(json::array());
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "config.json: holds array, expected a JSON object with the settings of a model");
  }
}

TEST(ConfigReader, WritesAsTransformersDoes) {
  const json config = {{"b", 1e-5}, {"a", {1}}, {"name", "\u00e9"}, {"architectures", {"Base"}}};
  EXPECT_EQ(model_config_text(config, "Model", "type"),
            "{\n  \"a\": [\n    1\n  ],\n  \"architectures\": [\n    \"Model\"\n  ],\n"
            "  \"b\": 1e-05,\n  \"model_type\": \"type\",\n  \"name\": \"\\u00e9\"\n}\n");
}

}  // namespace
}  // namespace fullshard::models
