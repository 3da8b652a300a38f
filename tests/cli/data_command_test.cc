// SPDX-License-Identifier: Apache-2.0
#include "fullshard/cli/commands/data_command.h"

#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "fullshard/cli/commands/byte_progress.h"
#include "tests/data/data_files.h"

namespace fullshard::cli {
namespace {

using nlohmann::json;
using testing::DataFolder;
using testing::error_of;
using testing::read_file;
using ::testing::internal::CaptureStdout;
using ::testing::internal::GetCapturedStdout;

// What `fullshard data …` prints.
std::string data(const std::string& arguments) {
  CLI::App app;
  DataCommand command(app);
  app.parse("data " + arguments);
  EXPECT_TRUE(command.was_chosen());
  CaptureStdout();
  try {
    EXPECT_EQ(command.run(), 0);
  } catch (...) {
    GetCapturedStdout();
    throw;
  }
  return GetCapturedStdout();
}

TEST(DataCommand, TokenizesIntoEveryFormatAndInspects) {
  const DataFolder folder;
  folder.write("a.txt", "aab");
  const std::string output = folder.file("out.bin");
  const std::string command = "tokenize --tokenizer bytes --output " + output + " ";
  EXPECT_EQ(data(command + folder.file("a.txt") + " " + folder.write("b.jsonl", R"({"t":"a"})") +
                 " --field t"),
            output + ": 6 tokens in 2 documents, fullshard, uint16\n");
  EXPECT_EQ(
      json::parse(data("inspect --json --top 2 " + output)),
      (json{{"file", output},
            {"format", "fullshard"},
            {"dtype", "uint16"},
            {"tokens", 6},
            {"documents", 2},
            {"min_token", 97},
            {"max_token", 257},
            {"distinct_tokens", 3},
            {"most_frequent", {{{"token", 97}, {"count", 3}}, {{"token", 257}, {"count", 2}}}}}));
  data(command + folder.file("a.txt") + " --format llmc");
  EXPECT_EQ(read_file(output).size(), 1024u + 2 * 4);
  data(command + folder.file("a.txt") + " --format nanogpt");
  EXPECT_EQ(read_file(output), DataFolder::bytes_of(std::vector<uint16_t>{97, 97, 98, 257}));
  EXPECT_EQ(data("inspect " + output), output +
                                           ": nanogpt, uint16\n"
                                           "tokens     4\n"
                                           "range      97 to 257, 3 different\n"
                                           "       97             2  50.0 %  " +
                                           std::string(30, '#') +
                                           "\n"
                                           "       98             1  25.0 %  ###############\n"
                                           "      257             1  25.0 %  ###############\n");
  EXPECT_EQ(error_of([&] { data("inspect --vocabulary 200 " + output); }, folder),
            "out.bin: token 257 at byte 6 (token number 3) is beyond the vocabulary of 200");
}

TEST(DataCommand, RefusesBeforeItWrites) {
  const DataFolder folder;
  const std::string text = folder.write("a.txt", "aab");
  const std::string tokenize = "tokenize --tokenizer bytes " + text + " --output ";
  EXPECT_EQ(error_of([&] { data(tokenize + text); }, folder, ErrorKind::usage),
            "data: --output a.txt is also read; name another file");
  EXPECT_EQ(error_of([&] { data(tokenize + folder.file("x") + " --format nanogpt"); }, folder,
                     ErrorKind::usage),
            "data: --output x: files of nanogpt have no header; use a name that ends in .bin");
  EXPECT_EQ(error_of([&] { data("inspect " + text); }, folder),
            "a.txt: is text, not a token file; 'fullshard data tokenize' makes one");
  folder.write("b.jsonl", "{\"text\": \"a\"}\n{");
  EXPECT_EQ(error_of(
                [&] {
                  data("tokenize --tokenizer bytes " + folder.file("b.jsonl") + " --output " +
                       folder.file("o.tokens"));
                },
                folder),
            "b.jsonl:2: is not valid JSON at column 2; expected one object per line");
  EXPECT_EQ(testing::entries_of(folder.path()).size(), 2u);
}

TEST(DataCommand, MakesACorpusAndHeldOutSums) {
  const DataFolder folder;
  const std::string train = folder.file("train.txt");
  const std::string held_out = folder.file("held_out.txt");
  EXPECT_EQ(
      data("make --kind sums --samples 300 --seed 1 --output " + train + " --held-out " + held_out),
      train + ": 300 lines\n" + held_out + ": 30 held-out sums\n");
  const std::string first = read_file(train);
  EXPECT_EQ(std::ranges::count(first, '\n'), 300);
  data("make --kind sums --samples 300 --seed 2 --output " + train);
  EXPECT_NE(read_file(train), first);
}

TEST(ByteProgress, ShowsPartRateAndTimeLeft) {
  EXPECT_EQ(ByteProgress::line(6 << 20, 8 << 20, 3),
            "[##################......]  75 %, 6 MiB of 8 MiB, 2 MiB/s, 1 s left");
  EXPECT_EQ(ByteProgress::line(8 << 20, 8 << 20, 4),
            "[########################] 100 %, 8 MiB of 8 MiB, 2 MiB/s");
  EXPECT_EQ(ByteProgress::line(0, 100, 0), "[........................]   0 %, 0 B of 100 B");
}

}  // namespace
}  // namespace fullshard::cli
