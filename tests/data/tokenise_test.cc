// SPDX-License-Identifier: Apache-2.0
#include "fullshard/data/text/tokenise.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "fullshard/data/text/in_order.h"
#include "fullshard/data/text/text_cache.h"
#include "tests/data/data_files.h"
#include "tests/data/toy_tokenizer.h"

namespace fullshard::data {
namespace {

using testing::DataFolder;
using testing::error_of;
using testing::ToyTokenizer;

struct Result {
  std::vector<int64_t> tokens;
  std::vector<uint64_t> documents;
  bool operator==(const Result&) const = default;
};

Result tokens_of(const TokeniseOptions& options, const Tokenizer& tokenizer) {
  const TokenFile file = tokenised_text(options, tokenizer, "");
  Result result{std::vector<int64_t>(static_cast<size_t>(file.size())),
                {file.documents().begin(), file.documents().end()}};
  file.read(0, result.tokens);
  return result;
}

// Lines of many lengths, some blank, some beginning with a space.
std::string many_lines(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) {
    text += std::string(static_cast<size_t>(i % 7 == 3), ' ') + "line " + std::to_string(i * 7919);
    text += i % 3 == 0 ? "\n\n" : "\n";
  }
  return text;
}

TEST(Tokenise, ADocumentIsCutOnlyWhereItsTokensStayTheSame) {
  const DataFolder folder;
  const std::string text = many_lines(2000);
  const MappedFile file(folder.write("a.txt", text), Access::sequential);
  const ToyTokenizer joining({.joins_blank_lines = true});
  const auto blocks = document_blocks(file, joining, 1000);
  EXPECT_GT(blocks.size(), text.size() / 2000);
  std::vector<int32_t> joined;
  for (const TextBlock& block : blocks) {
    const auto ids = joining.encode(block.text, false);
    joined.insert(joined.end(), ids.begin(), ids.end());
  }
  EXPECT_EQ(joined, joining.encode(text, false));
  EXPECT_TRUE(blocks.front().begins_document);
  EXPECT_FALSE(blocks.front().ends_document);
  EXPECT_TRUE(blocks.back().ends_document);
  const ToyTokenizer marking({.marks_beginning = true});
  EXPECT_EQ(document_blocks(file, marking, 1000).size(), 1u);
}

TEST(Tokenise, GivesTheSameForAnyNumberOfThreadsAndBlockSize) {
  const DataFolder folder;
  std::string records;
  for (int i = 0; i < 500; ++i) {
    records += "{\"body\": \"" + std::string(static_cast<size_t>(i % 13), 'x') + "\"}\n";
  }
  TokeniseOptions options{
      .files = {folder.write("a.txt", many_lines(500)), folder.write("b.jsonl", records)},
      .field = "body",
      .separator = 1,
      .num_threads = 1};
  const ToyTokenizer tokenizer;
  const Result expected = tokens_of(options, tokenizer);
  EXPECT_EQ(expected.documents.size(), 1u + 500 - 39);  // without the empty ones
  for (const int threads : {1, 2, 5}) {
    for (const int64_t bytes : {64, 1000, 100'000}) {
      options.num_threads = threads;
      options.block_bytes = bytes;
      EXPECT_EQ(tokens_of(options, tokenizer), expected) << threads << ' ' << bytes;
    }
  }
}

TEST(Tokenise, ArraysOfObjectsAreRecordsToo) {
  const DataFolder folder;
  const auto path = folder.write("a.json", "\n [ {\"text\": \"a\"},\n {\"text\": \"\\u00e9\"} ]\n");
  const Result result = tokens_of({.files = {path}, .separator = 1}, ToyTokenizer());
  EXPECT_EQ(result.tokens, (std::vector<int64_t>{107, 1, 10 + 0xc3, 10 + 0xa9, 1}));
  EXPECT_EQ(result.documents, (std::vector<uint64_t>{0, 2}));
}

TEST(Tokenise, PassesOverAByteOrderMark) {
  const DataFolder folder;
  const auto text = folder.write("a.txt",
                                 "\xef\xbb\xbf"
                                 "a");
  const auto lines = folder.write("a.jsonl", "\xef\xbb\xbf{\"text\": \"b\"}\r\n");
  EXPECT_EQ(tokens_of({.files = {text, lines}}, ToyTokenizer()).tokens,
            (std::vector<int64_t>{107, 108}));
}

TEST(Tokenise, ErrorsNameFileAndLine) {
  const DataFolder folder;
  const ToyTokenizer tokenizer;
  const auto error = [&](const std::string& name, const std::string& text) {
    const TokeniseOptions options{
        .files = {folder.write(name, text)}, .num_threads = 3, .block_bytes = 16};
    return error_of([&] { tokens_of(options, tokenizer); }, folder);
  };
  const std::string good = "{\"text\": \"fine\"}\n";
  EXPECT_EQ(error("a.jsonl", good + good + "{\"text\": }\n" + good + "{\n"),
            "a.jsonl:3: is not valid JSON at column 10; expected one object per line");
  EXPECT_EQ(error("a.jsonl", good + "\n" + "{\"body\": \"x\", \"id\": 3}\n"),
            "a.jsonl:3: has no field 'text'; its fields: body, id");
  EXPECT_EQ(error("a.jsonl", "{\"text\": 3}\n"),
            "a.jsonl:1: field 'text' is number, expected a string");
  EXPECT_EQ(error("a.jsonl", good + "7\n"), "a.jsonl:2: is number, expected an object");
  EXPECT_EQ(error("a.json", "[{\"text\": \"a\"},\n{\"text\": \"b\"}, 3]"),
            "a.json: record 3: is number, expected an object");
  EXPECT_EQ(error("a.json", "[{\"text\": \"a\"},\n{\"text\" \"b\"}]"),
            "a.json: is not valid JSON at line 2, column 11; expected an array of objects");
  const std::string deep = "{\"text\": " + std::string(100'000, '[');
  EXPECT_EQ(error("a.jsonl", good + deep + "\n"),
            "a.jsonl:2: is nested more than 100 deep at column 109; expected one object per line");
  EXPECT_EQ(error("a.json", "[" + deep),
            "a.json: is nested more than 100 deep at column 109; expected an array of objects");
  EXPECT_EQ(error("a.jsonl", "{\"a\\u001b[2J\": 1, \"text\\u0000\": 2}\n"),
            "a.jsonl:1: has no field 'text'; its fields: a\\x1b[2J, text\\x00");
  EXPECT_EQ(error("a.json", "[]"), "a.json: gives no tokens");
}

TEST(Tokenise, RefusesWhatIsNotTextWithItsPlace) {
  const DataFolder folder;
  const ToyTokenizer toy;
  const auto error = [&](const std::string& name, const std::string& bytes) {
    folder.write(name, bytes);
    return error_of([&] { tokens_of({.files = {folder.file(name)}, .block_bytes = 16}, toy); },
                    folder);
  };
  const std::string hint = "; text is read as UTF-8: convert the file, or give token files";
  // Latin-1 after two characters of UTF-8, beyond the first block and with a byte order mark.
  const std::string lines = "\xef\xbb\xbf" + many_lines(8);
  EXPECT_EQ(error("latin.txt", lines + "\u00e9 caf\xe9 au lait"),
            "latin.txt: byte " + std::to_string(lines.size() + 6) + " is 0xe9, which is not UTF-8" +
                hint);
  EXPECT_EQ(error("cut.txt", std::string("ab\xe2\x82")),
            "cut.txt: byte 2 is 0xe2, which is not UTF-8" + hint);
  EXPECT_EQ(error("binary.txt", std::string("ELF\0\x01", 5)),
            "binary.txt: byte 3 is 0x00, which is not text" + hint);
  EXPECT_EQ(error("utf16.txt", std::string("\xff\xfe"
                                           "a\0",
                                           4)),
            "utf16.txt: byte 0 is 0xff, which is not UTF-8" + hint);
  EXPECT_EQ(error("a.jsonl", "{\"text\": \"caf\xe9\"}"),
            "a.jsonl: byte 13 is 0xe9, which is not UTF-8" + hint);
}

TEST(Tokenise, ReportsProgressAndStopsWhenItHasEnough) {
  const DataFolder folder;
  const std::string record = "{\"text\": \"abcdef\"}\n";  // 19 bytes, 6 tokens
  std::string records;
  for (int i = 0; i < 10; ++i) records += record;
  std::vector<int64_t> seen;
  TokeniseOptions options{.files = {folder.write("a.jsonl", records)},
                          .num_threads = 2,
                          .block_bytes = 1,
                          .progress = [&](int64_t done, int64_t total) {
                            EXPECT_EQ(total, 190);
                            seen.push_back(done);
                          }};
  EXPECT_EQ(tokens_of(options, ToyTokenizer()).tokens.size(), 60u);
  EXPECT_EQ(seen.size(), 10u);
  EXPECT_EQ(seen.back(), 190);
  options.enough_tokens = 13;
  EXPECT_EQ(tokens_of(options, ToyTokenizer()).tokens.size(), 18u);
}

TEST(TextCache, IsWrittenOnceAndBelongsToTextAndTokenizer) {
  const DataFolder folder;
  const DataFolder cache;
  TokeniseOptions options{.files = {folder.write("a.txt", "ab\n\ncd")}};
  int made = 0;
  options.progress = [&](int64_t, int64_t) { ++made; };
  const ToyTokenizer plain;
  EXPECT_EQ(tokenised_text(options, plain, cache.path()).size(), 6);
  EXPECT_EQ(tokenised_text(options, plain, cache.path()).size(), 6);
  EXPECT_EQ(made, 1);
  const ToyTokenizer other({.joins_blank_lines = true});  // the same vocabulary
  EXPECT_EQ(tokenised_text(options, other, cache.path()).size(), 5);
  EXPECT_EQ(made, 2);
  folder.write("a.txt", "longer text");
  EXPECT_EQ(tokenised_text(options, plain, cache.path()).size(), 11);
  EXPECT_EQ(made, 3);
  EXPECT_EQ(testing::entries_of(cache.path()).size(), 3u);
}

TEST(TextCache, RemovesWhatInterruptedRunsLeftOfAnyText) {
  const DataFolder folder;
  ASSERT_EQ(::mkdir(folder.file("cache").c_str(), 0777), 0);
  folder.write("cache/0123456789abcdef.tokens.123-7ffc2e40.partial", "left");
  const TokeniseOptions options{.files = {folder.write("a.txt", many_lines(20))}};
  const ToyTokenizer tokenizer;
  tokenised_text(options, tokenizer, folder.file("cache"));
  const auto names = testing::entries_of(folder.file("cache"));
  ASSERT_EQ(names.size(), 1u);
  EXPECT_TRUE(names[0].ends_with(".tokens"));
}

TEST(TextCache, ThatIsDamagedIsMadeAgain) {
  const DataFolder folder;
  const DataFolder cache;
  const TokeniseOptions options{.files = {folder.write("a.txt", "ab\n\ncd")}};
  ASSERT_EQ(tokenised_text(options, ToyTokenizer(), cache.path()).size(), 6);
  const std::string name = testing::entries_of(cache.path()).at(0);
  for (const std::string& damaged : {std::string(), std::string(5672, '\0')}) {
    cache.write(name, damaged);
    EXPECT_EQ(tokenised_text(options, ToyTokenizer(), cache.path()).size(), 6);
  }
}

TEST(InOrder, TheErrorOfTheFirstItemComesOut) {
  for (const int threads : {1, 4}) {
    std::vector<int64_t> consumed;
    try {
      in_order(
          100, threads,
          [](int64_t i) {
            if (i >= 5) fail("item {}", i);
            return i;
          },
          [&](int64_t i) {
            consumed.push_back(i);
            return true;
          });
      ADD_FAILURE() << "no Error was thrown";
    } catch (const Error& error) {
      EXPECT_STREQ(error.what(), "item 5");
    }
    EXPECT_EQ(consumed, (std::vector<int64_t>{0, 1, 2, 3, 4}));
  }
}

TEST(InOrder, StopsWhenTheConsumerSaysOrThrows) {
  int64_t last = -1;
  const auto same = [](int64_t i) { return i; };
  in_order(1000, 3, same, [&](int64_t i) { return (last = i) < 7; });
  EXPECT_EQ(last, 7);
  EXPECT_THROW(in_order(1000, 3, same, [&](int64_t) -> bool { fail("full"); }), Error);
}

}  // namespace
}  // namespace fullshard::data
