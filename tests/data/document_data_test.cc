// SPDX-License-Identifier: Apache-2.0
#include "fullshard/data/document_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fullshard/data/documents/token_border.h"
#include "fullshard/data/open_data.h"
#include "tests/data/compressed_files.h"
#include "tests/data/data_files.h"
#include "tests/data/toy_tokenizer.h"

namespace fullshard::data {
namespace {

using testing::DataFolder;
using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using testing::ToyTokenizer;
using Ids = std::vector<int64_t>;
using Lengths = std::vector<std::vector<int64_t>>;

const ToyTokenizer kToy;

constexpr const char* kShortTemplate =
    "{% for m in messages %}<{{ m.role[0] }}>{{ m.content }};{% endfor %}"
    "{% if add_generation_prompt %}<a>{% endif %}";

// The text with brackets around the parts that are learnt, and $ for the end mark.
std::string shown(const EncodedDocument& document) {
  std::string text;
  bool is_inside = false;
  for (size_t i = 0; i < document.ids.size(); ++i) {
    if (document.is_learnt[i] != is_inside) text += is_inside ? "]" : "[";
    is_inside = document.is_learnt[i];
    text += document.ids[i] == ToyTokenizer::kEos ? "$" : kToy.decode({document.ids[i]}, false);
  }
  return text + (is_inside ? "]" : "");
}

class Documents : public ::testing::Test {
 protected:
  std::vector<EncodedDocument> encoded(const std::string& rows, LossOn loss_on,
                                       const ToyTokenizer& tokenizer = kToy) {
    const MappedFile file(folder_.write("rows.jsonl", rows), Access::sequential);
    const DocumentEncoder encoder(
        tokenizer, {.loss_on = loss_on, .chat_folder = folder_.path(), .vocabulary = 0});
    std::vector<EncodedDocument> documents;
    for (const TextBlock& block : record_blocks(file, FileKind::json)) {
      for (const DocumentRow& row : read_rows(block, "text")) {
        documents.push_back(encoder.encode(row, block.place(row.number)));
      }
    }
    return documents;
  }
  std::string shown_row(const std::string& row, LossOn loss_on = LossOn::completions_if_any) {
    return shown(encoded(row, loss_on).at(0));
  }
  std::string refusal(const std::string& row, LossOn loss_on = LossOn::completions_if_any) {
    return error_of([&] { encoded(row, loss_on); }, folder_);
  }
  void use_template(const std::string& text) { folder_.write("chat_template.jinja", text); }

  std::unique_ptr<Dataset> open(const std::string& rows, int64_t sequence_length,
                                bool packs = false) {
    return open_data({.paths = {folder_.write("rows.jsonl", rows)},
                      .sequence_length = sequence_length,
                      .packs = packs,
                      .chat_folder = folder_.path(),
                      .num_threads = 1},
                     &kToy);
  }

  const DataFolder folder_;
};

constexpr const char* kTalk =
    R"({"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yo"},
        {"role": "user", "content": "2+2"}, {"role": "assistant", "content": "4"}]})";

std::string one_line(std::string text) {
  std::erase(text, '\n');
  return text;
}

TEST_F(Documents, CompletionsAreLearntWithTheirEnd) {
  EXPECT_EQ(shown_row(R"({"prompt": "2+2=", "completion": "4"})"), "2+2=[4$]");
  EXPECT_EQ(shown_row(R"({"prompt": "", "completion": "4"})"), "[4$]");
  EXPECT_EQ(shown_row(R"({"prompt": "2+2=", "completion": "4"})", LossOn::all), "[2+2=4$]");
  EXPECT_EQ(shown_row(R"({"text": "abc"})"), "[abc$]");
}

TEST_F(Documents, AnswersOfTheAssistantAreLearnt) {
  use_template(kShortTemplate);
  EXPECT_EQ(shown_row(one_line(kTalk)), "<u>hi;<a>[yo;]<u>2+2;<a>[4;]");
  EXPECT_EQ(shown_row(one_line(kTalk), LossOn::all), "[<u>hi;<a>yo;<u>2+2;<a>4;]");
}

TEST_F(Documents, OfListsTheCompletionIsLearnt) {
  use_template(kShortTemplate);
  EXPECT_EQ(
      shown_row(R"({"prompt": [{"role": "user", "content": "hi"}, )"
                R"({"role": "assistant", "content": "yo"}, {"role": "user", "content": "2"}],)"
                R"( "completion": [{"role": "assistant", "content": "3"}]})"),
      "<u>hi;<a>yo;<u>2;<a>[3;]");
}

TEST_F(Documents, ATemplateMayCloseAllText) {  // as Phi-3's
  use_template(std::string(kShortTemplate) + "{% if not add_generation_prompt %}${% endif %}");
  EXPECT_EQ(shown_row(one_line(kTalk)), "<u>hi;<a>[yo;]<u>2+2;<a>[4;$]");
}

TEST_F(Documents, ATemplateMayOpenAnswersWithMore) {  // for instance by an empty thought
  use_template(std::string(kShortTemplate) + "{% if add_generation_prompt %}(think){% endif %}");
  EXPECT_EQ(shown_row(one_line(kTalk)), "<u>hi;<a>[yo;]<u>2+2;<a>[4;]");
}

TEST_F(Documents, ATemplateThatChangesEarlierTurnsIsRefused) {
  use_template(
      "{% for m in messages %}<{{ m.role[0] }}>"
      "{% if loop.last and m.role == 'assistant' %}(thought){% endif %}"
      "{{ m.content }};{% endfor %}{% if add_generation_prompt %}<a>{% endif %}");
  EXPECT_THAT(refusal(one_line(kTalk)),
              HasSubstr("rows.jsonl:1: the chat template writes message 2 differently once more "
                        "messages follow"));
  EXPECT_EQ(shown_row(R"({"messages": [{"role": "user", "content": "hi"},)"
                      R"( {"role": "assistant", "content": "yo"}]})"),
            "<u>hi;<a>[(thought)yo;]");
  use_template(
      "{% for m in messages %}<{{ m.role[0] }}>{% if loop.last %}(last){% endif %}"
      "{{ m.content }};{% endfor %}{% if add_generation_prompt %}<a>{% endif %}");
  EXPECT_THAT(refusal(one_line(kTalk)), HasSubstr("writes message 1 differently"));
}

TEST_F(Documents, MarksOfATemplateDecide) {
  use_template(
      "{% for m in messages %}<{{ m.role[0] }}>{% if m.role == 'assistant' %}"
      "{% generation %}{{ m.content }}{% endgeneration %}{% else %}{{ m.content }}{% endif %};"
      "{% endfor %}");
  EXPECT_EQ(shown_row(one_line(kTalk)), "<u>hi;<a>[yo];<u>2+2;<a>[4];");
}

TEST_F(Documents, ToolsReachTheTemplate) {
  use_template("{{ tools | tojson }}{% for m in messages %}{{ m.content }}{% endfor %}");
  EXPECT_EQ(
      shown_row(
          R"({"messages": [{"role": "assistant", "content": "x"}], "tools": [{"b": 1, "a": 2}]})"),
      R"([{"b": 1, "a": 2}][x])");
}

TEST_F(Documents, RowsThatAreWrongAreNamed) {
  EXPECT_EQ(refusal("{\"text\": \"a\"}\n{\"body\": \"a\", \"id\": 1}\n"),
            "rows.jsonl:2: is not a document; expected the field messages, the fields prompt and "
            "completion, or the field text; its fields: body, id");
  EXPECT_EQ(refusal(R"({"messages": []})"),
            "rows.jsonl:1: field 'messages' is not a list of messages");
  EXPECT_EQ(
      refusal(R"({"messages": [{"content": "a"}]})"),
      "rows.jsonl:1: message 1 of 'messages' is not an object with a \"role\" and a \"content\"");
  EXPECT_EQ(
      refusal(R"({"prompt": "a", "completion": 3})"),
      "rows.jsonl:1: field 'prompt' is string and 'completion' is number; expected two texts, "
      "or two lists of messages");
  EXPECT_EQ(refusal(R"({"text": "a"})", LossOn::completions),
            "rows.jsonl:1: is a text without a completion, but the loss is on completions "
            "only; use --loss-on all");
  EXPECT_THAT(refusal(one_line(kTalk)), HasSubstr("rows.jsonl:1: has messages, but the tokenizer "
                                                  "has no chat template"));
  use_template("{{ raise_exception('roles must alternate') }}");
  EXPECT_EQ(refusal(one_line(kTalk)), "rows.jsonl:1: chat_template: roles must alternate");
}

TEST(TokenBorder, ATokenAcrossItBelongsToThePart) {
  const ToyTokenizer joins({.joins_blank_lines = true});
  const auto whole = joins.encode("Q\n\nA\n\nB", false);  // Q, blank line, A, blank line, B
  EXPECT_EQ(token_at(Border::begin, joins.encode("Q\n", false), whole, joins), 1U);
  EXPECT_EQ(token_at(Border::begin, joins.encode("Q\n\n", false), whole, joins), 2U);
  EXPECT_EQ(token_at(Border::end, joins.encode("Q\n\nA\n", false), whole, joins), 4U);
  EXPECT_EQ(token_at(Border::end, joins.encode("Q\n\nA", false), whole, joins), 3U);
}

TEST_F(Documents, ARowIsPaddedBehind) {
  const auto data = open(R"({"prompt": "ab", "completion": "c"}
{"prompt": "a", "completion": "bcdefghijk"})",
                         16);
  ASSERT_EQ(data->size(), 2);
  const TokenBatch one = data->batch(Ids{0}, 0, 0);
  EXPECT_EQ(one.columns, 8);
  EXPECT_EQ(one.input_ids, (Ids{107, 108, 109, 0, 0, 0, 0, 0}));
  EXPECT_EQ(one.labels, (Ids{-100, 109, 1, -100, -100, -100, -100, -100}));
  EXPECT_TRUE(one.labels_are_next);
  EXPECT_TRUE(one.attention_mask.empty());  // causal rows never see what follows them
  EXPECT_TRUE(one.document_lengths.empty());
  EXPECT_EQ(one.num_tokens(), 3);
  EXPECT_EQ(one.num_labels(), 2);
  EXPECT_EQ(data->batch(Ids{0, 1}, 0, 0).columns, 16);
  EXPECT_EQ(data->max_token(), 117);
  EXPECT_THAT(data->warnings(), ElementsAre());
}

TEST_F(Documents, LongRowsAreCutAndThoseWithoutLabelsLeftOut) {
  const auto data = open(R"({"prompt": "abcdefgh", "completion": "x"}
{"prompt": "ab", "completion": "cdefgh"}
{"prompt": "a", "completion": "b"})",
                         4);
  ASSERT_EQ(data->size(), 2);
  EXPECT_EQ(data->batch(Ids{0}, 0, 0).input_ids, (Ids{107, 108, 109, 110}));
  EXPECT_EQ(data->batch(Ids{0}, 0, 0).labels, (Ids{-100, 109, 110, 111}));
  EXPECT_EQ(data->batch(Ids{1}, 0, 0).labels, (Ids{108, 1, -100, -100}));
  ASSERT_EQ(data->warnings().size(), 2U);
  EXPECT_THAT(data->warnings()[0], HasSubstr("2 of 3 rows are longer than 5 tokens and are cut"));
  EXPECT_THAT(data->warnings()[1], HasSubstr("1 of 3 rows have no token to learn"));
  EXPECT_EQ(error_of([&] { open(R"({"prompt": "abcdefgh", "completion": "x"})", 4); }, folder_),
            "rows.jsonl: 1 rows, none with a token to learn among its first 5; give a longer "
            "sequence length, or --loss-on all");
}

TEST_F(Documents, PackedOnesKeepTheirBorders) {
  const auto data = open(R"({"text": "abc"}
{"text": "wxyz"}
{"text": "pqr"})",
                         8, true);
  ASSERT_EQ(data->size(), 2);  // 3 + 4 inputs, then 3
  const TokenBatch batch = data->batch(Ids{0, 1}, 0, 0);
  EXPECT_EQ(batch.columns, 8);
  EXPECT_EQ(batch.document_lengths, (Lengths{{3, 4, 1}, {3, 5}}));
  EXPECT_EQ(batch.input_ids, (Ids{107, 108, 109, 129, 130, 131, 132, 0,  //
                                  122, 123, 124, 0, 0, 0, 0, 0}));
  EXPECT_EQ(batch.labels, (Ids{108, 109, 1, 130, 131, 132, 1, -100,  //
                               123, 124, 1, -100, -100, -100, -100, -100}));
  EXPECT_EQ(batch.num_tokens(), 10);
}

TEST_F(Documents, LongTextsArePackedInPieces) {
  const auto data = open(R"({"text": "abcdefghij"})", 4, true);
  ASSERT_EQ(data->size(), 3);  // ten predictions
  int64_t labels = 0;
  for (int64_t i = 0; i < 3; ++i) labels += data->batch(Ids{i}, 0, 0).num_labels();
  EXPECT_EQ(labels, 10);
  EXPECT_EQ(data->batch(Ids{1}, 0, 0).input_ids, (Ids{111, 112, 113, 114}));
  EXPECT_EQ(data->batch(Ids{1}, 0, 0).labels, (Ids{112, 113, 114, 115}));
}

TEST_F(Documents, TextsAreOneStreamUnlessTheyArePacked) {
  const std::string rows = "{\"text\": \"abcd\"}\n{\"text\": \"efgh\"}\n";
  EXPECT_EQ(open(rows, 3)->batch(Ids{1}, 0, 0).input_ids, (Ids{110, 1, 111}));
  EXPECT_EQ(open(rows, 4, true)->batch(Ids{1}, 0, 0).input_ids, (Ids{111, 112, 113, 114}));
}

// It does not matter which row is more than a text.
TEST_F(Documents, AnyRowMakesAllOfThemDocuments) {
  const std::string text = "{\"text\": \"abcd\"}\n";
  const std::string completion = R"({"prompt": "2+2=", "completion": "4"})";
  const std::string both = R"({"text": "q", "prompt": "2+2=", "completion": "4"})";
  for (const std::string& other : {completion, both}) {
    const auto data = open(text + other, 8);
    ASSERT_EQ(data->size(), 2);
    EXPECT_EQ(data->batch(Ids{0}, 0, 0).labels, (Ids{108, 109, 110, 1, -100, -100, -100, -100}));
    EXPECT_EQ(data->batch(Ids{1}, 0, 0).labels, (Ids{-100, -100, -100, 62, 1, -100, -100, -100}));
  }
  use_template(kShortTemplate);
  const std::string texts = folder_.write("texts.jsonl", text);
  const std::string chats = folder_.write("chats.jsonl", one_line(kTalk));
  for (const auto& [first, second] : {std::pair(texts, chats), std::pair(chats, texts)}) {
    const auto data = open_data({.paths = {first, second},
                                 .sequence_length = 64,
                                 .chat_folder = folder_.path(),
                                 .num_threads = 2},
                                &kToy);
    EXPECT_EQ(data->size(), 2);
    EXPECT_EQ(data->batch(Ids{0, 1}, 0, 0).num_labels(), 4 + 5);
  }
}

// A masked model learns the text of a row, whatever other fields it has.
TEST_F(Documents, AreTextsForMaskedModels) {
  const auto data =
      open_data({.paths = {folder_.write("rows.jsonl",
                                         R"({"text": "abcd", "prompt": "", "completion": ""})")},
                 .task = Task::masked_lm,
                 .sequence_length = 4,
                 .vocabulary = kToy.vocabulary()},
                &kToy);
  EXPECT_EQ(data->size(), 2);  // four bytes and [SEP], by two
}

TEST_F(Documents, AMarkOfTheFileIsNoText) {
  const std::string text = "one\ntwo\n";
  const auto labels = [&](const std::string& name, const std::string& bytes) {
    const auto data = open_data(
        {.paths = {folder_.write(name, bytes)}, .sequence_length = 16, .packs = true}, &kToy);
    return data->batch(Ids{0}, 0, 0).labels;
  };
  EXPECT_EQ(labels("a.txt", "\xef\xbb\xbf" + text), labels("b.txt", text));
}

#if FULLSHARD_HAS_ZLIB

TEST_F(Documents, MayBeCompressed) {
  use_template(kShortTemplate);
  const std::string rows =
      one_line(kTalk) + "\n" + R"({"prompt": "2+2=", "completion": "4"})" + "\n";
  const auto labels = [&](const std::string& name, const std::string& bytes, bool packs) {
    const auto data = open_data({.paths = {folder_.write(name, bytes)},
                                 .sequence_length = 64,
                                 .packs = packs,
                                 .chat_folder = folder_.path(),
                                 .num_threads = 2},
                                &kToy);
    std::vector<Ids> all;
    for (int64_t i = 0; i < data->size(); ++i) all.push_back(data->batch(Ids{i}, 0, 0).labels);
    return all;
  };
  const std::string array = "[" + one_line(kTalk) + "]";
  const std::string text = "one\n\ntwo\n";
  for (const bool packs : {false, true}) {
    EXPECT_EQ(labels("a.jsonl.gz", testing::gzipped(rows), packs), labels("a.jsonl", rows, packs));
    EXPECT_EQ(labels("a.json.gz", testing::gzipped(array), packs), labels("a.json", array, packs));
  }
  EXPECT_EQ(labels("a.txt.gz", testing::gzipped(text), true), labels("a.txt", text, true));
  EXPECT_EQ(error_of([&] { labels("b.jsonl.gz", testing::gzipped(rows + "7\n"), false); }, folder_),
            "b.jsonl.gz:3: is number, expected an object");
  EXPECT_EQ(
      error_of([&] { labels("b.jsonl.gz", testing::gzipped(rows).substr(0, 40), false); }, folder_),
      "b.jsonl.gz: is cut off; copy it again");
}

#endif

TEST_F(Documents, RowsDoNotDependOnThreadsAndBlocks) {
  std::string rows;
  for (int i = 0; i < 200; ++i) {
    rows += "{\"prompt\": \"" + std::string(static_cast<size_t>(i % 13 + 1), 'p') +
            "\", \"completion\": \"" + std::string(static_cast<size_t>(i % 7 + 1), 'c') + "\"}\n";
  }
  DocumentOptions options{.files = {folder_.write("rows.jsonl", rows)},
                          .sequence_length = 32,
                          .packs = true,
                          .num_threads = 1};
  const DocumentData one(options, kToy);
  options.num_threads = 3;
  options.block_bytes = 100;
  const DocumentData several(options, kToy);
  ASSERT_EQ(one.size(), several.size());
  for (int64_t i = 0; i < one.size(); ++i) {
    EXPECT_EQ(one.batch(Ids{i}, 0, 0).labels, several.batch(Ids{i}, 0, 0).labels);
  }
}

TEST_F(Documents, FlagsOfDocumentsNeedDocuments) {
  const std::string tokens = folder_.write_tokens<uint16_t>("a.bin", {1, 2, 3, 4, 5});
  DataOptions options{.paths = {tokens}, .sequence_length = 2, .packs = true};
  EXPECT_EQ(error_of([&] { open_data(options, &kToy); }, folder_, ErrorKind::usage),
            "a.bin: --packing is for documents in JSON or text; token files are one stream of "
            "tokens");
  options = {.paths = {tokens}, .task = Task::masked_lm, .loss_on = LossOn::all};
  EXPECT_EQ(error_of([&] { open_data(options, &kToy); }, folder_, ErrorKind::usage),
            "--loss-on: is for causal-lm only");
}

}  // namespace
}  // namespace fullshard::data
