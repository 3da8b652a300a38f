// SPDX-License-Identifier: Apache-2.0
#include "fullshard/config/document/reader.h"

#include <gtest/gtest.h>

namespace fullshard::config {
namespace {

ConfigNode node_of(std::string_view text) {
  Problems problems;
  auto node = read_config(text, "f", problems);
  EXPECT_TRUE(node && problems.ok()) << problems.text();
  return node.value_or(ConfigNode{});
}

std::string problems_of(std::string_view text) {
  Problems problems;
  read_config(text, "f", problems);
  return problems.text();
}

TEST(JsonReader, TakesCommentsAndTrailingCommas) {
  const ConfigNode root =
      node_of("// a\n{ # b\n \"x\": [1, 2,], /* c\n */ \"y\": {\"z\": true,},\n}\n#");
  EXPECT_EQ(to_json(root), R"({"x": [1, 2], "y": {"z": true}})");
  EXPECT_EQ(root.members[0].line, 3);
  EXPECT_EQ(root.members[1].line, 4);
}

TEST(JsonReader, KeepsKindsOfNumbers) {
  const ConfigNode root = node_of(R"({"a": 5e8, "b": -3, "c": 0.5, "d": 12345678901234567890})");
  EXPECT_EQ(root.find("a")->kind, NodeKind::number);
  EXPECT_EQ(root.find("a")->number, 5e8);
  EXPECT_EQ(root.find("b")->integer, -3);
  EXPECT_EQ(root.find("c")->number, 0.5);
  EXPECT_EQ(root.find("d")->kind, NodeKind::number);
}

TEST(JsonReader, DecodesEscapes) {
  EXPECT_EQ(node_of(R"({"a": "\"\\\/\n\u00e9\ud83d\ude00"})").find("a")->text,
            "\"\\/\n\xC3\xA9\xF0\x9F\x98\x80");
  EXPECT_EQ(problems_of(R"({"a": "\q"})"),
            "error: f:1: unknown escape \\q at column 9; write \\\\ for a backslash\n");
  EXPECT_EQ(problems_of(R"({"a": "\ud83d"})"),
            "error: f:1: incomplete surrogate pair at column 14\n");
}

TEST(JsonReader, NamesAForeignCommaAndGoesOn) {
  EXPECT_EQ(problems_of("{\"a\": 1\xD8\x8C \"b\": 2\xEF\xBC\x8C \"a\": 3}"),
            "error: f:1: '\xD8\x8C' at column 8 is U+060C (Arabic comma); write ,\n"
            "error: f:1: '\xEF\xBC\x8C' at column 16 is U+FF0C (fullwidth comma); write ,\n"
            "error: f:1: a: given twice, first on line 1; keep one of them\n");
}

// Each value as hjson 3.1, DeepSpeed's reader, reads it.
TEST(JsonReader, TakesWhatHjsonTakes) {
  EXPECT_EQ(to_json(node_of("{a: 1, b-c: {'d': 'it\\'s'}}")), R"({"a": 1, "b-c": {"d": "it's"}})");
  EXPECT_EQ(to_json(node_of("{\n a: 1\n b: auto\n \"c\": two words \t\n}")),
            R"({"a": 1, "b": "auto", "c": "two words"})");
  EXPECT_EQ(to_json(node_of("{a: [1\n2\n3], b: [\n x\n]\n}")), R"({"a": [1, 2, 3], "b": ["x"]})");
  EXPECT_EQ(to_json(node_of("{a: true # c\n b: /local/nvme\n}")),
            R"({"a": true, "b": "/local/nvme"})");
  EXPECT_EQ(to_json(node_of("{\"a\": 1\n\"b\": 3 apples\n}")), R"({"a": 1, "b": "3 apples"})");
}

// hjson would take the rest of the line, whatever it holds, as part of the string.
TEST(JsonReader, RefusesATextWithoutQuotesThatWouldSwallowMore) {
  for (const std::string tail :
       {",", ", \"b\": 1", "}", " # why", " // why", " /* why */", ": x"}) {
    EXPECT_EQ(problems_of("{\"a\": auto" + tail + "\n}"),
              "error: f:1: found auto, expected a value at column 7; put strings in double "
              "quotes\n")
        << tail;
  }
  EXPECT_EQ(problems_of("{a: '''x\n'''}"),
            "error: f:1: multi-line string at column 5; write it in double quotes with \\n\n");
  EXPECT_EQ(problems_of("{a b: 1}"),
            "error: f:1: found 'b' after \"a\", expected ':' at column 4\n");
  EXPECT_EQ(problems_of("{a: True\n}"),
            "error: f:1: found True, expected a value at column 5; write true or false in lower "
            "case\n");
}

TEST(JsonReader, BoundsDepthAndSize) {
  std::string deep = "{\"a\": ";
  for (int i = 0; i < 100'000; ++i) deep += '[';
  EXPECT_EQ(problems_of(deep),
            "error: f:1: nested more than 64 deep at column 71; reduce the nesting\n");
  const std::string large(kMaxConfigBytes + 1, ' ');
  EXPECT_EQ(problems_of(large),
            "error: f: expected a configuration of at most 4194304 bytes, but it has more\n");
}

TEST(YamlReader, GivesLinesAndKinds) {
  const ConfigNode root = node_of("a: 1\nb:\n  c: yes\n  d: 'yes'\n  e: ~\n  f: 1e8\n  g: 1_000\n");
  EXPECT_EQ(to_json(root),
            R"({"a": 1, "b": {"c": true, "d": "yes", "e": null, "f": 100000000, "g": 1000}})");
  EXPECT_EQ(root.find("b")->members[1].line, 4);
}

TEST(YamlReader, FollowsAnchorsAndMergeKeys) {
  const ConfigNode root = node_of("a: &x {p: 1, q: 2}\nb:\n  <<: *x\n  q: 3\nc: *x\n");
  EXPECT_EQ(to_json(*root.find("b")), R"({"q": 3, "p": 1})");
  EXPECT_EQ(to_json(*root.find("c")), R"({"p": 1, "q": 2})");
}

TEST(YamlReader, BoundsWhatAnchorsUnfold) {
  std::string bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 9; ++i) {
    bomb += fmt::format("a{}: &a{} [", i, i);
    for (int j = 0; j < 10; ++j) bomb += fmt::format("*a{}, ", i - 1);
    bomb += "x]\n";
  }
  EXPECT_NE(problems_of(bomb).find("more than 200000 values"), std::string::npos);
}

TEST(Reader, TellsTheGrammarByContent) {
  EXPECT_TRUE(looks_like_json("# c\n /* d */ {}"));
  EXPECT_FALSE(looks_like_json("# c\na: {}"));
  EXPECT_EQ(to_json(node_of("\xEF\xBB\xBF{\"a\": 1}")), R"({"a": 1})");
}

// base64.urlsafe_b64encode(b'{"zero_optimization": {"stage": 2}, "x": "\xc3\xbf\xc3\xbe?>"}')
TEST(Reader, TakesBase64WhereThereIsNoSuchFile) {
  const ConfigText source =
      read_config_file("eyJ6ZXJvX29wdGltaXphdGlvbiI6IHsic3RhZ2UiOiAyfSwgIngiOiAiw7_Dvj8-In0=");
  EXPECT_EQ(source.name, "base64");
  EXPECT_EQ(source.text, "{\"zero_optimization\": {\"stage\": 2}, \"x\": \"\xC3\xBF\xC3\xBE?>\"}");
  EXPECT_THROW(read_config_file("bm90IGpzb24="), Error);  // "not json"
}

TEST(Reader, TakesTheTextItself) {
  const ConfigText source = read_config_file(R"({"version": 2})");
  EXPECT_EQ(source.name, "JSON");
  EXPECT_EQ(source.text, R"({"version": 2})");
}

TEST(Reader, SaysWhyAFileCannotBeRead) {
  try {
    read_config_file("/nowhere/f.json");
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_status(), 2);
    EXPECT_STREQ(error.what(),
                 "/nowhere/f.json: cannot be read (No such file or directory); name an Accelerate "
                 "YAML or DeepSpeed JSON");
  }
}

}  // namespace
}  // namespace fullshard::config
