// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fullshard/data/text/decompressor.h"
#include "fullshard/data/text/text_cache.h"
#include "fullshard/data/text/text_parts.h"
#include "fullshard/data/text/tokenise.h"
#include "fullshard/data/translation_data.h"
#include "tests/data/compressed_files.h"
#include "tests/data/data_files.h"
#include "tests/data/toy_tokenizer.h"

namespace fullshard::data {
namespace {

using testing::DataFolder;
using testing::error_of;
using testing::ToyTokenizer;

std::string numbered_records(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += "{\"text\": \"record " + std::to_string(i) + "\"}\n";
  return text;
}

std::vector<int64_t> all_tokens(const TokeniseOptions& options) {
  const TokenFile file = tokenised_text(options, ToyTokenizer(), "");
  std::vector<int64_t> tokens(static_cast<size_t>(file.size()));
  file.read(0, tokens);
  return tokens;
}

#if FULLSHARD_HAS_ZLIB

TEST(CompressedText, GivesTheTokensOfThePlainFile) {
  const DataFolder folder;
  const std::string records = numbered_records(2000);
  std::string document;
  for (int i = 0; i < 3000; ++i) document += "line " + std::to_string(i * 7919) + "\n";
  TokeniseOptions options{
      .files = {folder.write("a.jsonl", records), folder.write("b.txt", document)},
      .separator = 1,
      .num_threads = 2};
  const auto expected = all_tokens(options);
  options.files = {folder.write("a.jsonl.gz", testing::gzipped(records)),
                   folder.write("b.txt.gz", testing::gzipped(document))};
  EXPECT_EQ(all_tokens(options), expected);
  // In parts, which must not end inside a record or change the document.
  for (const int64_t bytes : {100, 1000, 10'000}) {
    options.part_bytes = bytes;
    EXPECT_EQ(all_tokens(options), expected) << bytes;
  }
  // Concatenated files are one file.
  const std::string two =
      testing::gzipped(records.substr(0, 500)) + testing::gzipped(records.substr(500));
  options.files[0] = folder.write("c.jsonl.gz", two);
  EXPECT_EQ(all_tokens(options), expected);
}

TEST(CompressedText, KeepsDocumentsWhole) {
  const DataFolder folder;
  std::string document;
  for (int i = 0; i < 500; ++i) document += "line " + std::to_string(i) + "\n";
  const TokeniseOptions options{.files = {folder.write("a.txt.gz", testing::gzipped(document))},
                                .separator = 1,
                                .part_bytes = 200};
  const TokenFile file = tokenised_text(options, ToyTokenizer(), "");
  EXPECT_EQ(file.documents().size(), 1u);
  EXPECT_EQ(file.size(), static_cast<int64_t>(document.size()) + 1);  // one end mark
}

TEST(CompressedText, ErrorsCountLinesAndBytesOfTheWholeText) {
  const DataFolder folder;
  const auto error = [&](const std::string& name, const std::string& text) {
    folder.write(name, testing::gzipped(text));
    return error_of([&] { all_tokens({.files = {folder.file(name)}, .part_bytes = 200}); }, folder);
  };
  EXPECT_EQ(error("a.jsonl.gz", numbered_records(100) + "7\n"),
            "a.jsonl.gz:101: is number, expected an object");
  EXPECT_THAT(error("a.jsonl.gz", numbered_records(100) + "\xff\n"),
              ::testing::StartsWith("a.jsonl.gz: byte " +
                                    std::to_string(numbered_records(100).size()) + " is 0xff"));
}

TEST(CompressedText, DamagedOrCutOffIsSaid) {
  const DataFolder folder;
  std::string noise;  // does not compress
  uint32_t state = 1;
  for (int i = 0; i < 200'000; ++i) {
    state = state * 1664525 + 1013904223;
    noise += static_cast<char>('a' + (state >> 24) % 26);
    if (i % 61 == 60) noise += '\n';
  }
  const std::string whole = testing::gzipped(noise);
  const auto error = [&](const std::string& bytes) {
    folder.write("a.txt.gz", bytes);
    return error_of([&] { all_tokens({.files = {folder.file("a.txt.gz")}}); }, folder);
  };
  EXPECT_EQ(error(whole.substr(0, whole.size() / 2)), "a.txt.gz: is cut off; copy it again");
  std::string damaged = whole;
  damaged[damaged.size() - 6] ^= 1;  // the sum
  EXPECT_EQ(error(damaged), "a.txt.gz: is damaged (not valid gzip); copy it again");
  EXPECT_EQ(error("plain text"), "a.txt.gz: is not a gzip file, although its name says so");
  // A later member, and bytes that are no member.
  const std::string first = testing::gzipped("one\n");
  const std::string at = "not gzip from byte " + std::to_string(first.size()) + " on";
  EXPECT_EQ(error(first + whole.substr(0, whole.size() / 2)),
            "a.txt.gz: is cut off; copy it again");
  EXPECT_EQ(error(first + first.substr(0, 5)), "a.txt.gz: is cut off; copy it again");
  EXPECT_EQ(error(first + damaged), "a.txt.gz: is damaged (not valid gzip); copy it again");
  damaged = whole;
  damaged[0] ^= 1;  // its header
  EXPECT_EQ(error(first + damaged), "a.txt.gz: is damaged (" + at + "); copy it again");
  EXPECT_EQ(error(first + "rest"), "a.txt.gz: is damaged (" + at + "); copy it again");
  EXPECT_EQ(error(first + "\x1f"), "a.txt.gz: is damaged (" + at + "); copy it again");
  EXPECT_EQ(error(testing::gzipped("")), "a.txt.gz: is empty");
}

TEST(CompressedText, MayEndInZeros) {
  const DataFolder folder;
  const std::string whole = testing::gzipped("one\n");
  const auto expected = all_tokens({.files = {folder.write("a.txt.gz", whole)}});
  folder.write("a.txt.gz", whole + std::string(300'000, '\0'));
  EXPECT_EQ(all_tokens({.files = {folder.file("a.txt.gz")}}), expected);
  // A member may also be empty.
  folder.write("a.txt.gz", testing::gzipped("") + whole + testing::gzipped(""));
  EXPECT_EQ(all_tokens({.files = {folder.file("a.txt.gz")}}), expected);
}

TEST(CompressedText, NeverHoldsMoreThanAPart) {
  const DataFolder folder;
  const std::string path =
      folder.write("a.jsonl.gz", testing::gzipped(std::string(1'000'000, ' ') + "\n{}"));
  const TextPartOptions options{.part_bytes = 1000, .most_bytes = 10'000};
  EXPECT_EQ(error_of([&] { for_text_parts({path}, options, [](auto) { return true; }); }, folder),
            "a.jsonl.gz: from byte 0 of its text on, 10000 bytes hold no whole line or record; "
            "unpack the file, or split it");
  // Unpacking ends when enough is known.
  folder.write("b.jsonl.gz", testing::gzipped(numbered_records(10'000)));
  int64_t most = 0, parts = 0;
  for_text_parts({folder.file("b.jsonl.gz")}, options, [&](std::span<const TextPart> found) {
    most = std::max(most, std::ssize(found[0].file.bytes()));
    return ++parts < 3;
  });
  EXPECT_EQ(parts, 3);
  EXPECT_LE(most, 1000);
}

TEST(CompressedText, StaysWholeWithoutATokenizerThatCutsIt) {
  const DataFolder folder;
  std::string document;
  for (int i = 0; i < 500; ++i) document += "line " + std::to_string(i) + "\n";
  const std::string path = folder.write("a.txt.gz", testing::gzipped(document));
  std::vector<std::string> texts;
  for_text_parts({path}, {.part_bytes = 200}, [&](std::span<const TextPart> parts) {
    for (const TextBlock& block : blocks_of_part(parts[0], nullptr, 100)) {
      texts.emplace_back(block.text);
    }
    return true;
  });
  EXPECT_THAT(texts, ::testing::ElementsAre(document));
}

TEST(CompressedText, HoldsTablesToo) {
  const DataFolder folder;
  std::string table = "id,text\n";
  std::string expected;
  for (int i = 0; i < 300; ++i) {
    table += std::to_string(i) + ",\"a \"\"quoted\"\"\nrow " + std::to_string(i) + "\"\n";
    expected += "a \"quoted\"\nrow " + std::to_string(i);
  }
  const TokeniseOptions options{.files = {folder.write("a.csv.gz", testing::gzipped(table))},
                                .part_bytes = 100};
  std::string text;
  for (const int64_t token : all_tokens(options)) text += static_cast<char>(token - 10);
  EXPECT_EQ(text, expected);
}

#endif

#if FULLSHARD_HAS_ZSTD

TEST(CompressedText, MayBeZstd) {
  const DataFolder folder;
  const std::string records = numbered_records(30'000);
  const auto expected = all_tokens({.files = {folder.write("a.jsonl", records)}});
  const std::string whole = testing::zstd_compressed(records);
  TokeniseOptions options{.files = {folder.write("a.jsonl.zst", whole)}, .part_bytes = 10'000};
  EXPECT_EQ(all_tokens(options), expected);
  const std::string two = testing::zstd_compressed(records.substr(0, 700)) +
                          testing::zstd_compressed(records.substr(700));
  options.files = {folder.write("b.jsonl.zst", two)};
  EXPECT_EQ(all_tokens(options), expected);
  const auto error = [&](const std::string& bytes) {
    folder.write("c.jsonl.zst", bytes);
    return error_of([&] { all_tokens({.files = {folder.file("c.jsonl.zst")}}); }, folder);
  };
  EXPECT_EQ(error(whole.substr(0, whole.size() - 10)), "c.jsonl.zst: is cut off; copy it again");
  EXPECT_THAT(error("no zstd at all"),
              ::testing::StartsWith("c.jsonl.zst: is damaged, or not a zstd"));
}

#endif

TEST(CompressedText, IsKnownByTwoEndings) {
  EXPECT_EQ(compression_of("a.jsonl.gz"), Compression::gzip);
  EXPECT_EQ(compression_of("a.txt.zst"), Compression::zstd);
  EXPECT_EQ(compression_of("a.txt"), Compression::none);
  const DataFolder folder;
  EXPECT_EQ(kind_of(folder.write("a.ndjson.gz", "x")), FileKind::json);
  EXPECT_EQ(kind_of(folder.write("a.csv.zst", "x")), FileKind::csv);
  EXPECT_THAT(error_of([&] { kind_of(folder.write("a.bin.gz", "x")); }, folder),
              ::testing::StartsWith("a.bin.gz: unknown file ending"));
}

}  // namespace
}  // namespace fullshard::data
