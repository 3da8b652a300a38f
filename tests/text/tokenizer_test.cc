// SPDX-License-Identifier: Apache-2.0
// The promises of load_tokenizer, apart from equality of ids.
#include "fullshard/text/pipeline/tokenizer.h"

#include <gtest/gtest.h>

#include <fstream>
#include <thread>

#include "fullshard/base/error.h"
#include "fullshard/text/byte_tokenizer.h"
#include "fullshard/text/models/shelf.h"
#include "fullshard/text/models/word_cache.h"
#include "tests/files.h"
#include "tests/text/fixtures.h"

namespace fullshard::testing {
namespace {

using Ids = std::vector<int32_t>;

void write(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

std::string refusal(const std::string& path) {
  try {
    load_tokenizer(path);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::input);
    return error.what();
  }
  return "accepted";
}

TEST(ByteTokenizer, NeedsNoFile) {
  const auto tokenizer = load_tokenizer("bytes");
  EXPECT_EQ(tokenizer->encode("a\xFF", true), (Ids{256, 97, 255, 257}));
  EXPECT_EQ(tokenizer->encode("a\xFF", false), (Ids{97, 255}));
  EXPECT_EQ(tokenizer->decode({256, 0xC3, 0xA9, 257, 258}), "\u00e9");
  EXPECT_EQ(tokenizer->decode({256, 97, 258}, false), "<s>a<pad>");
  EXPECT_EQ(tokenizer->vocabulary(), 259);
  EXPECT_EQ(tokenizer->pad(), 258);
  EXPECT_EQ(tokenizer->id_of("</s>"), 257);
  EXPECT_EQ(tokenizer->token_of(200), "<0xC8>");
  EXPECT_TRUE(tokenizer->is_special(256));
  EXPECT_FALSE(tokenizer->is_special(255));
  EXPECT_FALSE(tokenizer->mask());
}

TEST(ByteTokenizer, IsRememberedInAFolder) {
  const TemporaryFolder folder;
  EXPECT_FALSE(text::names_byte_tokenizer(folder.path()));
  write(folder.file("tokenizer_config.json"), text::byte_tokenizer_config());
  EXPECT_TRUE(text::names_byte_tokenizer(folder.path()));
  const auto tokenizer = load_tokenizer(folder.path());
  EXPECT_EQ(tokenizer->encode("a\xFF", true), (Ids{256, 97, 255, 257}));
  EXPECT_EQ(tokenizer->encode("</s>", false), (Ids{60, 47, 115, 62}));
}

TEST(LoadTokenizer, SpecialIsWhatTheFamilyPutsAround) {
  const auto bert = load_tokenizer(fixture("bert_uncased"));
  const Ids plain = bert->encode("hello", false);
  Ids around = {*bert->cls()};
  around.insert(around.end(), plain.begin(), plain.end());
  around.push_back(*bert->sep());
  EXPECT_EQ(bert->encode("hello", true), around);
  EXPECT_EQ(bert->encode("", false), Ids{});
  EXPECT_EQ(bert->id_of("[MASK]"), bert->mask());
  EXPECT_EQ(bert->token_of(*bert->pad()), "[PAD]");
  EXPECT_TRUE(bert->is_special(*bert->mask()));
  EXPECT_FALSE(bert->bos());
  EXPECT_EQ(bert->encode("x [MASK]", false).back(), *bert->mask());
  EXPECT_EQ(bert->decode(around), "hello");
  EXPECT_EQ(bert->decode(around, false), "[CLS] hello [SEP]");
}

TEST(LoadTokenizer, VocabularyCountsAddedTokens) {
  const auto gpt2 = load_tokenizer(fixture("gpt2"));
  EXPECT_EQ(gpt2->vocabulary(), 803);
  EXPECT_EQ(gpt2->id_of("<|endoftext|>"), 800);
  EXPECT_EQ(gpt2->eos(), 800);
  EXPECT_FALSE(gpt2->id_of("no such token"));
  EXPECT_FALSE(gpt2->token_of(803));
}

TEST(LoadTokenizer, TheConfigurationNamesTheRoles) {
  const TemporaryFolder folder;
  write(folder.file("tokenizer.json"), read_file(fixture("llama2/tokenizer.json")));
  write(folder.file("tokenizer_config.json"), R"({"eos_token": {"content": "</s>"}})");
  write(folder.file("special_tokens_map.json"), R"({"pad_token": "<unk>"})");
  const auto tokenizer = load_tokenizer(folder.path());
  EXPECT_EQ(tokenizer->eos(), 2);
  EXPECT_EQ(tokenizer->pad(), 0);
  EXPECT_FALSE(tokenizer->bos());  // not named there
}

TEST(LoadTokenizer, TheConfigurationSaysWhereTextsAreCut) {
  const TemporaryFolder folder;
  write(folder.file("tokenizer.json"), read_file(fixture("llama2/tokenizer.json")));
  EXPECT_FALSE(load_tokenizer(folder.path())->cuts_left());
  write(folder.file("tokenizer_config.json"), R"({"truncation_side": "left"})");
  EXPECT_TRUE(load_tokenizer(folder.path())->cuts_left());
  write(folder.file("tokenizer_config.json"), R"({"truncation_side": "middle"})");
  EXPECT_EQ(refusal(folder.path()), folder.file("tokenizer_config.json") +
                                        ": truncation_side: \"middle\" is not supported");
}

TEST(SentencePiece, T5HasItsSentinelsBehindThePieces) {
  const auto t5 = load_tokenizer(fixture("t5_model"));
  const auto pieces = static_cast<int32_t>(t5->vocabulary()) - 100;
  EXPECT_EQ(t5->id_of("<extra_id_0>"), pieces + 99);
  EXPECT_EQ(t5->id_of("<extra_id_99>"), pieces);
  EXPECT_EQ(t5->pad(), 0);
  EXPECT_EQ(t5->eos(), 1);
  EXPECT_FALSE(t5->bos());
  // The text on both sides is encoded separately, as in transformers.
  Ids expected = t5->encode("hello", false);
  expected.push_back(pieces + 99);
  for (const int32_t id : t5->encode("world", false)) expected.push_back(id);
  expected.push_back(1);
  EXPECT_EQ(t5->encode("hello <extra_id_0> world", true), expected);
  EXPECT_TRUE(t5->is_special(pieces + 99));
}

TEST(SentencePiece, TheConfigurationDecidesAboutBosEosAndSentinels) {
  const TemporaryFolder folder;
  write(folder.file("tokenizer.model"), read_file(fixture("llama2_model/spiece.model")));
  write(folder.file("tokenizer_config.json"),
        R"({"tokenizer_class": "LlamaTokenizer", "add_bos_token": false, "add_eos_token": true,
            "added_tokens_decoder": {"1500": {"content": "<extra>", "special": true}}})");
  const auto tokenizer = load_tokenizer(folder.path());
  const Ids ids = tokenizer->encode("a<extra>", true);
  EXPECT_EQ(ids[ids.size() - 2], 1500);
  EXPECT_EQ(ids.back(), 2);
  EXPECT_NE(ids.front(), 1);
  EXPECT_EQ(tokenizer->vocabulary(), 1501);
}

TEST(LoadTokenizer, NamesTheFileAndTheOption) {
  const TemporaryFolder folder;
  EXPECT_EQ(refusal("/nowhere"),
            "tokenizer /nowhere: neither a file nor a folder; expected one, or \"bytes\"");
  EXPECT_EQ(refusal(folder.path()),
            folder.path() +
                "/: no tokenizer; expected tokenizer.json, a sentencepiece .model, "
                "vocab.json with merges.txt, or vocab.txt");
  const std::string json = folder.file("tokenizer.json");
  write(json, R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["a"]}})");
  EXPECT_EQ(refusal(json),
            json + ": model.merges[0]: is \"a\", expected two tokens with a space between");
  write(json, "{\"model\": ");
  EXPECT_EQ(refusal(json), json + ": is not valid JSON at column 11");
  const std::string model = folder.file("tokenizer.model");
  write(model, "IQ== 0\nIg== 1\n");
  EXPECT_EQ(refusal(model),
            model + ": a tiktoken file, not a sentencepiece model; tokenizer.json is needed");
  write(folder.file("vocab.json"), R"({"a": 0})");
  write(folder.file("merges.txt"), "#version: 0.2\na b c\n");
  EXPECT_EQ(refusal(folder.file("vocab.json")),
            folder.file("merges.txt") + ":2: \"a b c\", expected two tokens with a space between");
}

TEST(LoadTokenizer, RefusesFilesThatNestWithoutEnd) {
  const TemporaryFolder folder;
  for (const char* name : {"tokenizer.json", "vocab.json"}) {
    write(folder.file(name), "{\"a\": " + std::string(100'000, '['));
    EXPECT_EQ(refusal(folder.file(name)),
              folder.file(name) + ": is nested more than 100 deep at column 106");
  }
  write(folder.file("tokenizer.json"), "{}");
  write(folder.file("tokenizer_config.json"), std::string(100'000, '{'));
  EXPECT_EQ(refusal(folder.path()),
            folder.file("tokenizer_config.json") + ": is nested more than 100 deep at column 101");
}

TEST(LoadTokenizer, ShowsNamesOfTheFileEscaped) {
  const TemporaryFolder folder;
  const std::string json = folder.file("tokenizer.json");
  write(json, R"({"model": {"type": "\u001b[2JBPE"}})");
  EXPECT_EQ(refusal(json), json + ": model.type: \"\\x1b[2JBPE\" is not supported");
  write(json, R"({"\u0000\n": 1, "model": {"type": "BPE"}})");
  EXPECT_EQ(refusal(json), json + ": the top level: unknown option \"\\x00\\n\"");
  write(folder.file("vocab.json"), R"({"a": 0})");
  write(folder.file("merges.txt"), "a\x1b[2J\n");
  EXPECT_EQ(
      refusal(folder.file("vocab.json")),
      folder.file("merges.txt") + ":1: \"a\\x1b[2J\", expected two tokens with a space between");
}

TEST(Tokenizer, ThreadsShareOne) {
  const auto tokenizer = load_tokenizer(fixture("llama3"));
  const auto strings = recorded_strings();
  const auto recorded = recorded_ids("llama3");
  std::atomic<int> num_wrong = 0;
  std::vector<std::thread> threads;
  for (size_t thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      for (size_t i = thread; i < 1000; i += 2) {
        num_wrong += tokenizer->encode(strings[i], true) != recorded[i].ids;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(num_wrong, 0);
}

TEST(Shelf, LendsAgainWhatWasGivenBack) {
  text::Shelf<int> shelf;
  int* first = nullptr;
  {
    const auto lease = shelf.borrow();
    *lease = 7;
    first = &*lease;
    EXPECT_EQ(*shelf.borrow(), 0);  // another one, while the first is out
  }
  const auto a = shelf.borrow(), b = shelf.borrow();
  EXPECT_TRUE(&*a == first || &*b == first);
}

TEST(WordCache, KeepsShortWordsAndGivesUpTheOldest) {
  text::WordCache cache;
  const Ids ids = {1, 2, 3};
  cache.keep("word", 5, ids);
  EXPECT_EQ(Ids(cache.find("word", 5).begin(), cache.find("word", 5).end()), ids);
  EXPECT_TRUE(cache.find("wore", 5).empty());
  cache.keep("two", 5, ids);
  EXPECT_FALSE(cache.find("word", 5).empty());
  cache.keep("three", 5, ids);
  EXPECT_TRUE(cache.find("word", 5).empty());
  cache.keep(std::string(27, 'x'), 6, ids);
  EXPECT_TRUE(cache.find(std::string(27, 'x'), 6).empty());
}

}  // namespace
}  // namespace fullshard::testing
