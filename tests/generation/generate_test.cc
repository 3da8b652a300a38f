// SPDX-License-Identifier: Apache-2.0
// What generate() promises beside the tokens themselves.
#include "fullshard/generation/generate.h"

#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "fullshard/generation/cached_language_model.h"
#include "fullshard/text/byte_tokenizer.h"
#include "tests/errors.h"
#include "tests/generation/fixture_models.h"

namespace fullshard::testing {
namespace {

using ::testing::HasSubstr;

// Says a text over and over, a byte at a time, whatever the prompt; a user's own model.
class Parrot : public TokenModel {
 public:
  explicit Parrot(const std::string& text, int64_t positions = 0) : positions_(positions) {
    for (const char byte : text) said_.push_back(static_cast<unsigned char>(byte));
  }
  explicit Parrot(std::vector<int64_t> tokens) : said_(std::move(tokens)) {}

  int64_t vocabulary() const override { return 259; }
  int64_t max_positions() const override { return positions_; }
  at::Tensor begin(const std::vector<std::vector<int64_t>>& prompts, int64_t) override {
    places_.assign(prompts.size(), 0);
    num_begun += 1;
    return logits();
  }
  at::Tensor next(const std::vector<int64_t>& tokens) override {
    EXPECT_EQ(tokens.size(), places_.size());
    for (size_t& place : places_) ++place;
    rows_of_steps.push_back(places_.size());
    return logits();
  }
  void select_rows(const std::vector<int64_t>& rows) override {
    std::vector<size_t> selected;
    for (const int64_t row : rows) selected.push_back(places_[static_cast<size_t>(row)]);
    places_ = selected;
  }

  int num_begun = 0;
  std::vector<size_t> rows_of_steps;

 private:
  at::Tensor logits() const {
    auto all = at::full({static_cast<int64_t>(places_.size()), vocabulary()}, -5.0);
    for (size_t row = 0; row < places_.size(); ++row) {
      all[static_cast<int64_t>(row)][said_[places_[row] % said_.size()]] = 5.0;
    }
    return all.to(at::kFloat);
  }

  std::vector<int64_t> said_;
  int64_t positions_ = 0;
  std::vector<size_t> places_;
};

// Has a score that is none for its second row, or its only one, from the third token on.
class BrokenParrot : public Parrot {
 public:
  explicit BrokenParrot(float score) : Parrot("ab"), score_(score) {}

  at::Tensor next(const std::vector<int64_t>& tokens) override {
    auto logits = Parrot::next(tokens);
    if (rows_of_steps.size() >= 2) logits[logits.size(0) > 1 ? 1 : 0][200] = score_;
    return logits;
  }

 private:
  float score_;
};

TEST(Generate, EndsAtAStopTextThatTokensCut) {
  const auto tokenizer = text::byte_tokenizer();
  Parrot parrot("one two three ");
  GenerateOptions options;
  options.stop = {"zzz", "wo th"};
  const auto result = generate(parrot, {{{1}, 0}}, options, tokenizer.get())[0];
  EXPECT_EQ(result.text, "one t");
  EXPECT_EQ(result.tokens.size(), 10u);  // up to the last byte of the stop text
  EXPECT_EQ(result.finish, FinishReason::stop);
}

TEST(Generate, GoesOnWhereAStopTextOnlyBegins) {
  const auto tokenizer = text::byte_tokenizer();
  Parrot parrot("aab");
  GenerateOptions options;
  options.stop = {"aaa"};
  options.max_new_tokens = 8;
  std::string streamed;
  const auto result =
      generate(parrot, {{{1}, 0}}, options, tokenizer.get(),
               {.on_token = [&](const TokenEvent& event) { streamed += event.text; }})[0];
  EXPECT_EQ(result.text, "aabaabaa");
  EXPECT_EQ(streamed, result.text);
  EXPECT_EQ(result.finish, FinishReason::length);
}

TEST(Generate, NeverStreamsAPartOfAStopText) {
  const auto tokenizer = text::byte_tokenizer();
  Parrot parrot("Hi! END more");
  GenerateOptions options;
  options.stop = {"END"};
  std::vector<std::string> pieces;
  bool was_last = false;
  generate(parrot, {{{1}, 7}}, options, tokenizer.get(), {.on_token = [&](const TokenEvent& event) {
             EXPECT_EQ(event.prompt, 7);
             EXPECT_FALSE(was_last);
             pieces.emplace_back(event.text);
             was_last = event.is_last;
           }});
  EXPECT_TRUE(was_last);
  std::string all;
  for (const auto& piece : pieces) all += piece;
  EXPECT_EQ(all, "Hi! ");
}

TEST(Generate, StreamsWholeCharacters) {
  const auto tokenizer = text::byte_tokenizer();
  Parrot parrot("\xC3\xA4\xE2\x82\xAC");  // two and three bytes
  GenerateOptions options;
  options.max_new_tokens = 5;
  std::vector<std::string> pieces;
  generate(parrot, {{{1}, 0}}, options, tokenizer.get(),
           {.on_token = [&](const TokenEvent& event) { pieces.emplace_back(event.text); }});
  EXPECT_THAT(pieces, ::testing::ElementsAre("", "\xC3\xA4", "", "", "\xE2\x82\xAC"));
}

TEST(Generate, EndsAtAnyOfTheEndTokensAndLeavesItOutOfTheText) {
  const auto tokenizer = text::byte_tokenizer();
  Parrot parrot("abcd");
  GenerateOptions options;
  options.eos_tokens = {'x', 'c'};
  const auto result = generate(parrot, {{{1}, 0}}, options, tokenizer.get())[0];
  EXPECT_EQ(result.text, "ab");
  EXPECT_THAT(result.tokens, ::testing::ElementsAre('a', 'b', 'c'));
  EXPECT_EQ(result.finish, FinishReason::eos);
}

TEST(Generate, DropsRowsThatHaveEnded) {
  const auto model = load_generator("llama");
  CachedLanguageModel cached(*model);
  GenerateOptions options;
  options.max_new_tokens = 6;
  const std::vector<std::vector<int64_t>> prompts = {{5}, {6, 7}, {8, 9, 10}};
  const auto plain = generate(cached, numbered(prompts), options);
  // The second token of the first answer ends sequences; the others' are as before up to it.
  options.eos_tokens = {plain[0].tokens[1]};
  const auto ended = generate(cached, numbered(prompts), options);
  for (size_t i = 0; i < 3; ++i) {
    auto expected = plain[i].tokens;
    const auto end = std::find(expected.begin(), expected.end(), options.eos_tokens[0]);
    if (end != expected.end()) expected.erase(end + 1, expected.end());
    EXPECT_EQ(ended[i].tokens, expected);
  }
  Parrot parrot("a");
  parrot.begin({{1}}, 1);
}

TEST(Generate, LeavesNoRoomUnusedAndTakesNoMoreThanThereIs) {
  const auto tokenizer = text::byte_tokenizer();
  Parrot parrot("abc", /*positions=*/6);
  const auto results = generate(parrot, {{{1, 2, 3, 4}, 0}, {{1}, 1}}, {}, tokenizer.get());
  EXPECT_EQ(results[0].text, "ab");
  EXPECT_EQ(results[1].text, "abcab");
  EXPECT_EQ(results[0].finish, FinishReason::length);
  EXPECT_THAT(parrot.rows_of_steps, ::testing::ElementsAre(2, 1, 1, 1));
}

TEST(Generate, ReadsAPromptOnceForAllItsSequences) {
  Parrot parrot("ab");
  GenerateOptions options;
  options.do_sample = true;
  options.num_return_sequences = 3;
  options.max_new_tokens = 2;
  options.batch = 2;
  const auto results = generate(parrot, {{{1}, 0}, {{2}, 1}, {{3}, 2}}, options);
  EXPECT_EQ(parrot.num_begun, 2);
  EXPECT_THAT(parrot.rows_of_steps, ::testing::ElementsAre(6, 3));
  ASSERT_EQ(results.size(), 9u);
  for (int64_t i = 0; i < 9; ++i) {
    EXPECT_EQ(results[static_cast<size_t>(i)].prompt, i / 3);
    EXPECT_EQ(results[static_cast<size_t>(i)].number, i % 3);
  }
}

TEST(Generate, DrawsByTheNumberOfThePromptAndNotItsPlace) {
  const auto model = load_generator("gpt2");
  CachedLanguageModel cached(*model);
  GenerateOptions options;
  options.do_sample = true;
  options.max_new_tokens = 8;
  std::vector<GeneratePrompt> prompts;
  for (int64_t i = 0; i < 5; ++i) prompts.push_back({{5 + i, 20, 7}, i});
  const auto together = generate(cached, prompts, options);
  for (int64_t i = 4; i >= 0; --i) {
    const auto place = static_cast<size_t>(i);
    EXPECT_EQ(generate(cached, {prompts[place]}, options)[0].tokens, together[place].tokens);
  }
  options.seed = 43;
  EXPECT_NE(tokens_of(generate(cached, prompts, options)), tokens_of(together));
}

TEST(Generate, AsksBeforeEveryStep) {
  Parrot parrot("ab");
  GenerateOptions options;
  options.max_new_tokens = 5;
  int steps = 0;
  const GenerateCallbacks callbacks{.on_step = [&] {
    if (++steps == 3) fail("enough");
  }};
  EXPECT_EQ(message_of([&] {
              generate(parrot, {{{1}, 0}}, options, nullptr, callbacks);
            }),
            "enough");
  EXPECT_EQ(steps, 3);
}

TEST(Generate, BeamsStopAtTextsToo) {
  const auto tokenizer = text::byte_tokenizer();
  Parrot parrot("one two three ");
  GenerateOptions options;
  options.num_beams = 2;
  options.stop = {"two"};
  options.max_new_tokens = 20;
  const auto result = generate(parrot, {{{1}, 0}}, options, tokenizer.get())[0];
  EXPECT_EQ(result.text, "one ");
  EXPECT_EQ(result.finish, FinishReason::stop);
}

TEST(Generate, EndsAtASpecialTokenThatIsAStopText) {
  const auto tokenizer = text::byte_tokenizer();  // 258: <pad>, which texts leave out
  for (const int64_t num_beams : {1, 2}) {
    Parrot parrot(std::vector<int64_t>{'a', 'b', 258, 'c'});
    GenerateOptions options;
    options.num_beams = num_beams;
    options.max_new_tokens = 12;
    options.stop = {"zzz", "<pad>"};
    const auto result = generate(parrot, {{{1}, 0}}, options, tokenizer.get())[0];
    EXPECT_EQ(result.text, "ab") << num_beams;
    EXPECT_THAT(result.tokens, ::testing::ElementsAre('a', 'b', 258)) << num_beams;
    EXPECT_EQ(result.finish, FinishReason::stop) << num_beams;
  }
}

TEST(Generate, FailsWhereLogitsAreNotFinite) {
  GenerateOptions greedy, sampled, beams, told;
  sampled.do_sample = true;
  beams.num_beams = 2;
  told.wants_logprobs = true;
  const std::string expected =
      "after 2 new tokens the model's logits are NaN or infinite: its weights are not finite, or "
      "too large for their dtype; check them, or compute in a wider one";
  for (const GenerateOptions& options : {greedy, sampled, beams, told}) {
    for (const float score :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      BrokenParrot alone(score), second(score);
      EXPECT_EQ(message_of([&] { generate(alone, {{{1}, 7}}, options); }), "prompt 7: " + expected);
      if (options.num_beams > 1) continue;
      EXPECT_EQ(message_of([&] {
                  generate(second, {{{1}, 3}, {{1}, 4}}, options);
                }),
                "prompt 4: " + expected);
    }
  }
  BrokenParrot forbids(-std::numeric_limits<float>::infinity());
  greedy.max_new_tokens = 4;
  EXPECT_THAT(generate(forbids, {{{1}, 0}}, greedy)[0].tokens,
              ::testing::ElementsAre('a', 'b', 'a', 'b'));
}

TEST(Generate, NamesWhatIsWrongWithAPrompt) {
  Parrot parrot("a", /*positions=*/4);
  const auto said = [&](std::vector<int64_t> tokens) {
    return message_of([&] { generate(parrot, {{tokens, 12}}, {}); });
  };
  EXPECT_EQ(said({}), "prompt 12: has no tokens; give at least one");
  EXPECT_EQ(said({1, 2, 3, 4}),
            "prompt 12: has 4 tokens, but the model has 4 positions, which leaves none for the "
            "answer; cut the prompt");
  EXPECT_EQ(said({1, 259}),
            "prompt 12: token 259, but the model's vocabulary has 259; use its own tokenizer");
}

TEST(Generate, NamesEveryOptionThatMakesNoSense) {
  GenerateOptions options;
  options.max_new_tokens = 0;
  options.temperature = -1;
  options.top_p = 1.5;
  options.num_return_sequences = 2;
  options.stop = {""};
  const auto said = message_of([&] { check_generate_options(options); });
  for (const char* part :
       {"max_new_tokens is 0, expected at least 1", "temperature is -1", "top_p is 1.5",
        "num_return_sequences is 2, but without sampling or beams", "a stop text is empty"}) {
    EXPECT_THAT(said, HasSubstr(part));
  }
  Parrot parrot("a");
  options = {};
  options.stop = {"x"};
  EXPECT_THAT(message_of([&] {
                generate(parrot, {{{1}, 0}}, options);
              }),
              HasSubstr("need a tokenizer"));
  options = {.do_sample = true, .num_beams = 2};
  EXPECT_THAT(message_of([&] { check_generate_options(options); }),
              HasSubstr("beam search does not sample"));
}

// Each of them is rows of every step, and of tables that are made before memory is looked at.
TEST(Generate, RefusesMoreSequencesThanAnyBatchHas) {
  for (const int64_t many : {int64_t{16'385}, int64_t{1'000'000'000}}) {
    EXPECT_EQ(message_of([&] { check_generate_options({.num_beams = many}); }),
              fmt::format("generate: num_beams is {}, expected from 1 to 16384", many));
    EXPECT_EQ(message_of([&] {
                check_generate_options({.do_sample = true, .num_return_sequences = many});
              }),
              fmt::format("generate: num_return_sequences is {}, expected from 1 to 16384", many));
  }
}

TEST(Generate, LooksAtTheTemperatureOnlyWhereItSamples) {
  GenerateOptions options = {.temperature = 0};
  EXPECT_EQ(message_of([&] { check_generate_options(options); }), "no error");
  options.do_sample = true;
  EXPECT_EQ(message_of([&] { check_generate_options(options); }),
            "generate: temperature is 0, expected a number above 0; the likeliest token is had "
            "without sampling");
}

}  // namespace
}  // namespace fullshard::testing
