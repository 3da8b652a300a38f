// SPDX-License-Identifier: Apache-2.0
#include "fullshard/generation/prompt_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "fullshard/text/byte_tokenizer.h"
#include "tests/errors.h"
#include "tests/files.h"

namespace fullshard::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Prompts, AreLinesOfText) {
  const auto prompts = parse_prompts("one\r\n\n  two \n{\"x\": 1}", PromptFormat::lines, "p.txt");
  ASSERT_EQ(prompts.size(), 3u);
  EXPECT_EQ(prompts[0].text, "one");
  EXPECT_EQ(prompts[1].text, "  two ");
  EXPECT_EQ(prompts[1].place, "p.txt, line 3");
  EXPECT_EQ(prompts[2].text, "{\"x\": 1}");
}

TEST(Prompts, AreObjectsOfThreeKinds) {
  const auto prompts = parse_prompts(
      "{\"prompt\": \"a\"}\n{\"tokens\": [4, 5]}\n{\"messages\": [{\"role\": \"user\", "
      "\"content\": "
      "\"hi\"}]}\n",
      PromptFormat::json_lines, "p.jsonl");
  ASSERT_EQ(prompts.size(), 3u);
  EXPECT_EQ(prompts[0].text, "a");
  EXPECT_THAT(prompts[1].tokens, ElementsAre(4, 5));
  EXPECT_EQ(prompts[2].messages[0]["content"], "hi");
}

TEST(Prompts, HandTheirToolsToTheTemplate) {
  const auto prompts = parse_prompts(
      R"({"messages": [{"role": "user", "content": "hi"}], "tools": [{"name": "f"}, {"name": "g"}]}
{"messages": [{"role": "user", "content": "hi"}], "tools": null})",
      PromptFormat::json_lines, "p.jsonl");
  const LoadedChatTemplate chat{
      ChatTemplate("{% for t in tools or [] %}{{ t.name }}{% endfor %}|{{ tools is none }}"), {}};
  const PromptEncoder encoder{.chat = &chat};
  EXPECT_EQ(encoder.text_of(prompts[0]), "fg|False");
  EXPECT_EQ(encoder.text_of(prompts[1]), "|True");
}

TEST(Prompts, ThatAreDamagedAreNamedByLine) {
  const auto said = [](const std::string& line) {
    return message_of([&] {
      parse_prompts("{\"prompt\": \"a\"}\n" + line, PromptFormat::json_lines, "p.jsonl");
    });
  };
  EXPECT_THAT(said("{\"prompt\": "), HasSubstr("p.jsonl, line 2: is not valid JSON"));
  EXPECT_THAT(said("{}"), HasSubstr("p.jsonl, line 2: expected an object with one of"));
  EXPECT_THAT(said("{\"prompt\": \"a\", \"tokens\": [1]}"), HasSubstr("one of"));
  EXPECT_THAT(said("{\"prompt\": 3}"), HasSubstr("\"prompt\" is no text"));
  EXPECT_THAT(said("{\"tokens\": []}"), HasSubstr("no list of token ids"));
  EXPECT_THAT(said("{\"tokens\": [1, 2.5]}"), HasSubstr("no list of token ids"));
  EXPECT_THAT(said("{\"messages\": [{\"content\": \"x\"}]}"), HasSubstr("\"role\""));
  EXPECT_THAT(said(R"({"messages": [{"role": "user"}], "tools": ["f"]})"),
              HasSubstr("p.jsonl, line 2: \"tools\" is no list of objects"));
  EXPECT_THAT(message_of([] { parse_prompts("\n \n", PromptFormat::lines, "p.txt"); }),
              HasSubstr("p.txt: holds no prompt"));
  EXPECT_THAT(message_of([] { read_prompts("/nowhere/p.txt"); }),
              HasSubstr("/nowhere/p.txt: cannot be read"));
}

TEST(Prompts, AreReadByTheEndingOfTheirFile) {
  TemporaryFolder folder;
  for (const std::string name : {"p.jsonl", "p.ndjson", "p.json", "p.txt"}) {
    std::ofstream(folder.file(name)) << "{\"tokens\": [7]}\n";
  }
  EXPECT_THAT(read_prompts(folder.file("p.jsonl"))[0].tokens, ElementsAre(7));
  EXPECT_THAT(read_prompts(folder.file("p.ndjson"))[0].tokens, ElementsAre(7));
  EXPECT_EQ(read_prompts(folder.file("p.txt"))[0].text, "{\"tokens\": [7]}");
  EXPECT_EQ(message_of([&] { read_prompts(folder.file("p.json")); }),
            folder.file("p.json") +
                ": ends in .json, expected .jsonl or .ndjson with an object per line, or lines of "
                "text under another ending; write the prompts so");
}

TEST(Prompts, BeginBehindAByteOrderMark) {
  const std::string mark = "\xEF\xBB\xBF";
  const auto lines = parse_prompts(mark + "one\ntwo", PromptFormat::lines, "p.txt");
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0].text, "one");
  TemporaryFolder folder;
  std::ofstream(folder.file("in")) << mark << "{\"tokens\": [7]}\n";
  EXPECT_THAT(read_prompt_input(folder.file("in"))[0].tokens, ElementsAre(7));
  EXPECT_EQ(message_of([&] { parse_prompts(mark, PromptFormat::lines, "p.txt"); }),
            "p.txt: holds no prompt");
}

TEST(Prompts, AreUtf8) {
  for (const auto format : {PromptFormat::lines, PromptFormat::json_lines}) {
    EXPECT_EQ(message_of([&] { parse_prompts("\nHel\xFFlo\n", format, "p.txt"); }),
              "p.txt, line 2: byte 3 is 0xff, which is no UTF-8; prompts are read as UTF-8: "
              "convert them, or give \"tokens\"");
  }
  EXPECT_EQ(parse_prompts("H\xC3\xA9", PromptFormat::lines, "p.txt")[0].text, "H\xC3\xA9");
}

TEST(Prompts, OfStandardInputAreKnownByTheirFirstLetter) {
  TemporaryFolder folder;
  std::ofstream(folder.file("in")) << "\n {\"tokens\": [7]}\n";
  EXPECT_THAT(read_prompt_input(folder.file("in"))[0].tokens, ElementsAre(7));
  std::ofstream(folder.file("in")) << "plain\n";
  EXPECT_EQ(read_prompt_input(folder.file("in"))[0].text, "plain");
}

TEST(PromptEncoder, LeavesTheEndOfATextToTheModel) {
  const auto bytes = text::byte_tokenizer();  // puts <s> before and </s> behind
  const PromptEncoder decoder{.tokenizer = bytes.get()};
  EXPECT_THAT(decoder.tokens_of({.text = "ab"}), ElementsAre(256, 'a', 'b'));
  const PromptEncoder encoder{.tokenizer = bytes.get(), .ends_prompts = true};
  EXPECT_THAT(encoder.tokens_of({.text = "ab"}), ElementsAre(256, 'a', 'b', 257));
  EXPECT_THAT(decoder.tokens_of({.tokens = {5, 257}}), ElementsAre(5, 257));
}

TEST(PromptEncoder, RendersMessagesWithoutFurtherTokens) {
  const auto bytes = text::byte_tokenizer();
  const LoadedChatTemplate chat{ChatTemplate("<{{ messages[0].content }}>"), {}};
  const PromptEncoder encoder{.tokenizer = bytes.get(), .chat = &chat};
  WrittenPrompt prompt;
  prompt.messages = {{{"role", "user"}, {"content", "x"}}};
  EXPECT_EQ(encoder.text_of(prompt), "<x>");
  EXPECT_THAT(encoder.tokens_of(prompt), ElementsAre('<', 'x', '>'));
  prompt.place = "p.jsonl, line 4";
  EXPECT_THAT(message_of([&] { PromptEncoder{.tokenizer = bytes.get()}.tokens_of(prompt); }),
              HasSubstr("p.jsonl, line 4: has messages, but the tokenizer has no chat_template"));
  EXPECT_THAT(message_of([&] { PromptEncoder{}.tokens_of({.text = "a", .place = "--prompt"}); }),
              HasSubstr("--prompt: is a text, but the model's folder has no tokenizer"));
}

}  // namespace
}  // namespace fullshard::testing
