// SPDX-License-Identifier: Apache-2.0
#include "fullshard/data/tokens/token_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>

#include "fullshard/data/causal_data.h"
#include "fullshard/data/tokens/token_writer.h"
#include "tests/data/data_files.h"

namespace fullshard::data {
namespace {

using testing::DataFolder;
using testing::error_of;
using testing::read_file;
using Tokens = std::vector<int64_t>;

Tokens all_of(const TokenFile& file) {
  Tokens tokens(static_cast<size_t>(file.size()));
  file.read(0, tokens);
  return tokens;
}

std::string llmc_header(int32_t magic, int32_t version, int32_t count) {
  std::vector<int32_t> header(256);
  header[0] = magic;
  header[1] = version;
  header[2] = count;
  return DataFolder::bytes_of(header);
}

TEST(TokenFile, RawFilesAreUint16UnlessToldOtherwise) {
  const DataFolder folder;
  const std::vector<uint16_t> narrow = {1, 2, 65535};
  const std::vector<uint32_t> wide = {7, 70000};
  EXPECT_EQ(all_of(TokenFile(folder.write_tokens("a.bin", narrow))), (Tokens{1, 2, 65535}));
  EXPECT_EQ(all_of(TokenFile(folder.write_tokens("a.u32.bin", wide))), (Tokens{7, 70000}));
  EXPECT_EQ(all_of(TokenFile(folder.write_tokens("b.bin", wide), "uint32")), (Tokens{7, 70000}));
  EXPECT_EQ(all_of(TokenFile(folder.file("b.bin"))), (Tokens{7, 0, 4464, 1}));
  folder.write("b.bin.json", R"({"dtype": "uint32"})");
  EXPECT_EQ(all_of(TokenFile(folder.file("b.bin"))), (Tokens{7, 70000}));
}

// A file that has lost its beginning would be read as wrong tokens.
TEST(TokenFile, OfOurOwnNameHasAHeader) {
  const DataFolder folder;
  folder.write("a.tokens", std::string(64, '\0'));
  EXPECT_EQ(error_of([&] { TokenFile(folder.file("a.tokens")); }, folder),
            "a.tokens: does not begin like a .tokens file; it is damaged, make it again with "
            "'fullshard data tokenize', or name raw tokens .bin");
  EXPECT_EQ(TokenFile(folder.file("a.tokens"), "uint16").size(), 32) << "where that is said";
}

TEST(TokenFile, IsNotWaitedForWhereItIsAPipe) {
  const DataFolder folder;
  ASSERT_EQ(::mkfifo(folder.file("a.bin").c_str(), 0600), 0);
  EXPECT_EQ(error_of([&] { TokenFile(folder.file("a.bin")); }, folder),
            "a.bin: is not a regular file; data are read from files");
}

TEST(TokenFile, ReadsBothHeadersOfLlmC) {
  const DataFolder folder;
  const auto gpt2 = folder.write_tokens("gpt2.bin", std::vector<uint16_t>{50256, 3, 4},
                                        llmc_header(20240520, 1, 3));
  const auto llama =
      folder.write_tokens("llama", std::vector<uint32_t>{128000, 5}, llmc_header(20240801, 7, 2));
  EXPECT_EQ(all_of(TokenFile(gpt2)), (Tokens{50256, 3, 4}));
  EXPECT_EQ(TokenFile(gpt2).layout().format, TokenFormat::llmc);
  EXPECT_EQ(TokenFile(gpt2).byte_of(2), 1028);
  EXPECT_EQ(all_of(TokenFile(llama)), (Tokens{128000, 5}));
}

TEST(TokenFile, NamesWhatIsWrong) {
  const DataFolder folder;
  const auto error = [&](const std::string& bytes, const char* dtype = "") {
    const std::string path = folder.write("x.bin", bytes);
    return error_of([&] { TokenFile(path, dtype); }, folder);
  };
  EXPECT_EQ(error(""), "x.bin: holds no tokens");
  EXPECT_EQ(
      error("abc"),
      "x.bin: is 3 bytes long, expected a multiple of 2 (uint16 tokens); the file is cut short, "
      "or its tokens are of another dtype");
  EXPECT_EQ(
      error("abcdef", "uint32"),
      "x.bin: is 6 bytes long, expected a multiple of 4 (uint32 tokens); the file is cut short, "
      "or its tokens are of another dtype");
  EXPECT_EQ(error("ab", "int8"),
            "x.bin: unsupported token dtype 'int8'; expected uint16 or uint32");
  EXPECT_EQ(error(llmc_header(20240520, 1, 3).substr(0, 100)),
            "x.bin: ends after 100 bytes, inside llm.c's header of 1024");
  EXPECT_EQ(error(llmc_header(20240520, 2, 3)),
            "x.bin: llm.c file of version 2, expected 1 with magic 20240520");
  EXPECT_EQ(
      error(llmc_header(20240520, 1, 3) + "abcd"),
      "x.bin: its header names 3 tokens of 2 bytes, but 4 bytes follow; the file is cut short "
      "or was not written whole");
  EXPECT_EQ(
      error(llmc_header(20240520, 1, -1)),
      "x.bin: its header names -1 tokens of 2 bytes, but 0 bytes follow; the file is cut short "
      "or was not written whole");
  EXPECT_EQ(error(llmc_header(20240520, 1, 1) + "ab", "uint32"),
            "x.bin: holds uint16 tokens by its header, but dtype uint32 was asked for");
  EXPECT_EQ(error_of([&] { TokenFile(folder.file("none.bin")); }, folder),
            "none.bin: cannot be read (No such file or directory)");
  EXPECT_EQ(error_of([&] { TokenFile(std::string("/tmp")); }, folder),
            "/tmp: is not a regular file; data are read from files");
  folder.write("x.bin.json", "{}");
  EXPECT_EQ(error("ab"), R"(x.bin.json: expected {"dtype": "uint16"} or {"dtype": "uint32"})");
}

TEST(TokenWriter, WritesTheIndexedFormatToTheByte) {
  const DataFolder folder;
  TokenWriter writer(AtomicFile(folder.file("a.tokens")), TokenFormat::fullshard, 2);
  writer.begin_document();
  writer.append(std::vector<int32_t>{5, 6, 7});
  writer.begin_document();
  writer.append(std::vector<int32_t>{300, 2});
  EXPECT_FALSE(testing::file_exists(folder.file("a.tokens")));
  writer.finish();
  const std::string bytes = read_file(folder.file("a.tokens"));
  std::string expected = "FSTOKENS";
  expected += DataFolder::bytes_of(std::vector<uint32_t>{1, 2});
  expected += DataFolder::bytes_of(std::vector<int64_t>{5, 2, 300, 64, 80});
  EXPECT_EQ(bytes.substr(0, 56), expected);
  EXPECT_EQ(bytes.substr(64),
            DataFolder::bytes_of(std::vector<uint16_t>{5, 6, 7, 300, 2, 0, 0, 0}) +
                DataFolder::bytes_of(std::vector<uint64_t>{0, 3}));
  const TokenFile file(folder.file("a.tokens"));
  EXPECT_EQ(all_of(file), (Tokens{5, 6, 7, 300, 2}));
  EXPECT_EQ(std::vector(file.documents().begin(), file.documents().end()),
            (std::vector<uint64_t>{0, 3}));
  EXPECT_EQ(file.layout().max_token, 300);
  EXPECT_EQ(testing::entries_of(folder.path()).size(), 1u);
}

TEST(TokenWriter, EveryFormatAndWidthReadsBack) {
  const DataFolder folder;
  for (const TokenFormat format :
       {TokenFormat::nanogpt, TokenFormat::llmc, TokenFormat::fullshard}) {
    for (const int width : {2, 4}) {
      TokenWriter writer(AtomicFile(folder.file("x.bin")), format, width);
      writer.begin_document();
      Tokens expected;
      for (int32_t i = 0; i < 700'000; ++i) {  // more than its buffer
        expected.push_back(width == 2 ? i % 65536 : i);
      }
      writer.append(std::vector<int32_t>(expected.begin(), expected.end()));
      writer.finish();
      EXPECT_EQ(all_of(TokenFile(folder.file("x.bin"))), expected) << name_of(format) << width;
    }
  }
}

TEST(TokenWriter, LeavesNothingUnlessItFinishes) {
  const DataFolder folder;
  { TokenWriter(AtomicFile(folder.file("a.bin")), TokenFormat::nanogpt, 2).begin_document(); }
  EXPECT_TRUE(testing::entries_of(folder.path()).empty());
  EXPECT_EQ(error_of([&] { AtomicFile file(folder.file("no/a.bin")); }, folder),
            "no/a.bin: cannot be written (No such file or directory)");
}

TEST(TokenWriter, LeavesNothingWhenItsProcessIsKilled) {
  const DataFolder folder;
  const pid_t child = ::fork();
  if (child == 0) {
    AtomicFile file(folder.file("a.bin"));
    file.append("something");
    ::kill(::getpid(), SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  // If files need a name while they are written, the next one of that name removes it.
  { AtomicFile(folder.file("a.bin")).append("anything"); }
  EXPECT_TRUE(testing::entries_of(folder.path()).empty());
}

TEST(TokenWriter, RemovesThePartsThatAreNobodysAndNoOtherFiles) {
  const DataFolder folder;
  folder.write("a.bin.123-7ffc2e40.partial", "left");
  folder.write("a.bin.124-7ffc2e40.partial", "being written");
  for (const char* name : {"a.bin", "b.bin.123-7f.partial", "a.bin.123-7g.partial", "a.bin.partial",
                           "a.bin.123-7f.partially"}) {
    folder.write(name, "another's");
  }
  const int writer = ::open(folder.file("a.bin.124-7ffc2e40.partial").c_str(), O_RDWR);
  ASSERT_EQ(::flock(writer, LOCK_EX), 0);
  {
    AtomicFile file(folder.file("a.bin"));
    file.append("new");
    EXPECT_EQ(read_file(folder.file("a.bin")), "another's");
    file.commit();
  }
  EXPECT_EQ(read_file(folder.file("a.bin")), "new");
  EXPECT_THAT(testing::entries_of(folder.path()),
              ::testing::UnorderedElementsAre("a.bin", "a.bin.124-7ffc2e40.partial",
                                              "b.bin.123-7f.partial", "a.bin.123-7g.partial",
                                              "a.bin.partial", "a.bin.123-7f.partially"));
  ::close(writer);
  remove_abandoned_parts(folder.path(), ".bin");
  EXPECT_THAT(testing::entries_of(folder.path()),
              ::testing::UnorderedElementsAre("a.bin", "a.bin.123-7g.partial", "a.bin.partial",
                                              "a.bin.123-7f.partially"));
}

TEST(TokenWriter, DoesNotTakeTheNameOfADevice) {
  const DataFolder folder;
  ASSERT_EQ(::mkfifo(folder.file("pipe").c_str(), 0600), 0);
  EXPECT_EQ(error_of([&] { AtomicFile file(folder.file("pipe")); }, folder),
            "pipe: is not a regular file; name another place");
}

// A limit on the size of files simulates a full disk.
TEST(TokenWriter, LeavesNothingWhenTheDiskIsFull) {
  const DataFolder folder;
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit old_limit{};
  ::getrlimit(RLIMIT_FSIZE, &old_limit);
  const rlimit small{1 << 20, old_limit.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &small);
  const std::string message = error_of(
      [&] {
        TokenWriter writer(AtomicFile(folder.file("a.bin")), TokenFormat::nanogpt, 2);
        for (int i = 0; i < 3; ++i) writer.append(std::vector<int32_t>(1 << 19, 7));
        writer.finish();
      },
      folder, ErrorKind::failed);
  ::setrlimit(RLIMIT_FSIZE, &old_limit);
  std::signal(SIGXFSZ, old_handler);
  EXPECT_EQ(message, "a.bin: cannot be written (File too large); make room, or name another place");
  EXPECT_TRUE(testing::entries_of(folder.path()).empty());
}

TEST(TokenFile, RefusesEveryDamagedHeader) {
  const DataFolder folder;
  TokenWriter writer(AtomicFile(folder.file("a.tokens")), TokenFormat::fullshard, 4);
  writer.append(std::vector<int32_t>{1, 2, 3});
  writer.begin_document();
  writer.finish();
  const std::string good = read_file(folder.file("a.tokens"));
  for (size_t at = 8; at < 64; ++at) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 0x10);
    const std::string message = error_of([&] { TokenFile(folder.write("a.tokens", bad)); }, folder);
    EXPECT_EQ(message.starts_with("a.tokens: "), true) << message;
  }
  for (size_t length = 8; length < good.size(); ++length) {
    EXPECT_THROW(TokenFile(folder.write("a.tokens", good.substr(0, length))), Error) << length;
  }
  EXPECT_EQ(error_of([&] { TokenFile(folder.write("a.tokens", good.substr(0, 80))); }, folder),
            "a.tokens: is 80 bytes long, its header says 88; the file is cut short");
}

int64_t resident_bytes() {
  int64_t total = 0;
  int64_t resident = 0;
  std::ifstream("/proc/self/statm") >> total >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

TEST(TokenFile, TenGigabytesCostNoMemory) {
  const DataFolder folder;
  const std::string path = folder.write("big.bin", "");
  ASSERT_EQ(::truncate(path.c_str(), int64_t{10} << 30), 0);
  const int64_t before = resident_bytes();
  std::vector<TokenFile> files;
  files.emplace_back(path);
  const CausalData data(TokenStream(std::move(files), 50257), 1024, 0);
  EXPECT_EQ(data.size(), ((int64_t{5} << 30) - 1) / 1024);
  const ExampleOrder order(data.size(), 8, Order::shuffled, 1);
  for (int64_t step = 0; step < 20; ++step) {
    EXPECT_EQ(data.batch(order.examples(step), 0, 0).num_tokens(), 8 * 1024);
  }
  EXPECT_LT(resident_bytes() - before, int64_t{8} << 20);
}

}  // namespace
}  // namespace fullshard::data
