// SPDX-License-Identifier: Apache-2.0
// A model over its cache against the same model over whole sequences.
#include <ATen/ops/allclose.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "fullshard/generation/cache_size.h"
#include "fullshard/generation/cached_language_model.h"
#include "fullshard/generation/host_key_value_cache.h"
#include "tests/errors.h"
#include "tests/generation/fixture_models.h"

namespace fullshard::testing {
namespace {

using Tokens = std::vector<std::vector<int64_t>>;

// Four more tokens than the window of the Mistral fixture, and less than GPT-2's positions.
const Tokens kPrompts = {{7, 9, 11, 4, 30}, {5}, {20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31}};
const Tokens kNext = {{8, 31, 12}, {40, 41, 7}, {13, 5, 44}, {6, 6, 6}, {22, 23, 9}};

at::Tensor row_tensor(const std::vector<int64_t>& tokens) {
  return at::tensor(tokens, at::TensorOptions().dtype(at::kLong)).unsqueeze(0);
}

// Logits after the last token, by the whole sequence.
at::Tensor whole_logits(LanguageModel& model, const std::vector<int64_t>& prompt,
                        const std::vector<int64_t>& next) {
  const at::NoGradGuard no_grad;
  ModelInputs inputs{.input_ids = row_tensor(prompt)};
  if (model.is_encoder_decoder()) {
    std::vector<int64_t> targets = {0};
    targets.insert(targets.end(), next.begin(), next.end());
    inputs.decoder_input_ids = row_tensor(targets);
  } else {
    std::vector<int64_t> all = prompt;
    all.insert(all.end(), next.begin(), next.end());
    inputs.input_ids = row_tensor(all);
  }
  const auto logits = model.forward(inputs).logits;
  return logits[0][logits.size(1) - 1];
}

void expect_whole_logits(LanguageModel& model, const at::Tensor& found,
                         const std::vector<size_t>& rows, size_t num_next) {
  for (size_t place = 0; place < rows.size(); ++place) {
    std::vector<int64_t> next;
    for (size_t step = 0; step < num_next; ++step) next.push_back(kNext[step][rows[place]]);
    const auto expected = whole_logits(model, kPrompts[rows[place]], next);
    EXPECT_TRUE(at::allclose(found[static_cast<int64_t>(place)], expected, 1e-5, 1e-5))
        << "row " << rows[place] << " after " << num_next
        << " tokens: " << (found[static_cast<int64_t>(place)] - expected).abs().max().item<float>();
  }
}

class CachedLogits : public ::testing::TestWithParam<std::string> {};

TEST_P(CachedLogits, AreThoseOfWholeSequences) {
  const auto model = load_generator(GetParam());
  for (const bool on_host : {false, true}) {
    for (const int64_t chunk : {512, 3}) {
      CachedLanguageModel cached(*model, {.prefill_tokens = chunk, .keeps_cache_on_host = on_host});
      expect_whole_logits(*model, cached.begin(kPrompts, 8), {0, 1, 2}, 0);
      for (size_t step = 0; step < kNext.size(); ++step) {
        expect_whole_logits(*model, cached.next(kNext[step]), {0, 1, 2}, step + 1);
      }
    }
  }
}

void expect_logits_follow_rows(LanguageModel* model, bool on_host) {
  CachedLanguageModel cached(*model, {.keeps_cache_on_host = on_host});
  cached.begin(kPrompts, 8);
  cached.next(kNext[0]);
  cached.select_rows({2, 1, 0, 2, 1});  // more than there were
  const auto more = cached.next({kNext[1][2], kNext[1][1], kNext[1][0], kNext[1][2], kNext[1][1]});
  expect_whole_logits(*model, more, {2, 1, 0, 2, 1}, 2);
  cached.select_rows({3, 1, 3, 2, 4});  // as many
  const auto same = cached.next({kNext[2][2], kNext[2][1], kNext[2][2], kNext[2][0], kNext[2][1]});
  expect_whole_logits(*model, same, {2, 1, 2, 0, 1}, 3);
  cached.select_rows({4, 3});  // fewer
  expect_whole_logits(*model, cached.next({kNext[3][1], kNext[3][0]}), {1, 0}, 4);
}

TEST_P(CachedLogits, FollowTheirRows) {
  const auto model = load_generator(GetParam());
  expect_logits_follow_rows(model.get(), false);
}

TEST_P(CachedLogits, FollowTheirRowsInHostMemory) {
  const auto model = load_generator(GetParam());
  expect_logits_follow_rows(model.get(), true);
}

TEST(CacheRoom, PutsTheCacheOnTheHostWhereThatCostsLess) {
  const auto on_host = [](int64_t weights, int64_t cache, int64_t device) {
    return generation::is_cache_cheaper_on_host(
        {.weight_bytes = weights, .cache_bytes = cache, .window_bytes = 2, .device_bytes = device});
  };
  EXPECT_FALSE(on_host(60, 40, 100));  // all of it fits
  EXPECT_FALSE(on_host(80, 40, 100));  // 20 of the weights, or 20 of the cache
  EXPECT_TRUE(on_host(81, 40, 100));   // 21 of the weights, or 20 of the cache
  EXPECT_TRUE(on_host(98, 40, 100));
  EXPECT_FALSE(on_host(99, 40, 100));  // weights are brought in any case
  EXPECT_FALSE(on_host(300, 50, 100));
  EXPECT_TRUE(on_host(300, 51, 100));
}

// Of all layers two are on the device, with the columns in use.
TEST(HostKeyValueCache, BringsTwoLayersAtMost) {
  constexpr int64_t kRows = 2, kHeads = 3, kWidth = 4, kCapacity = 16;
  constexpr size_t kLayers = 5;
  generation::HostKeyValueCache cache(kRows, kCapacity, at::kCPU);
  for (int64_t pass = 0; pass < 3; ++pass) {
    const auto places = cache.next_places(2, at::kCPU);
    for (size_t layer = 0; layer < kLayers; ++layer) {
      const auto tokens = at::full({kRows, 2, kHeads, kWidth},
                                   static_cast<double>(10 * pass) + static_cast<double>(layer));
      const auto seen = cache.store(layer, tokens, -tokens, places);
      for (int64_t before = 0; before <= pass; ++before) {
        const double expected = static_cast<double>(10 * before) + static_cast<double>(layer);
        const auto columns = seen.keys.narrow(2, 2 * before, 2);
        EXPECT_TRUE(columns.eq(expected).all().item<bool>()) << pass << " " << layer;
        EXPECT_TRUE(seen.values.narrow(2, 2 * before, 2).eq(-expected).all().item<bool>());
      }
    }
    cache.advance(2);
  }
  const int64_t column = 2 * kRows * kHeads * kWidth * static_cast<int64_t>(sizeof(float));
  EXPECT_EQ(cache.bytes(), static_cast<int64_t>(kLayers) * kCapacity * column);
  EXPECT_EQ(cache.peak_device_bytes(), 2 * 7 * column);  // six that are filled and a next one
}

// Prompts that are read beside others give the bits that they give alone.
TEST_P(CachedLogits, OfAPromptHaveTheSameBitsInEveryBatch) {
  const auto model = load_generator(GetParam());
  CachedLanguageModel cached(*model);
  const auto all = cached.begin(kPrompts, 8);
  const auto after_all = cached.next(kNext[0]);
  for (size_t row = 0; row < kPrompts.size(); ++row) {
    const auto place = static_cast<int64_t>(row);
    EXPECT_TRUE(at::equal(cached.begin({kPrompts[row]}, 8)[0], all[place])) << row;
    EXPECT_TRUE(at::equal(cached.next({kNext[0][row]})[0], after_all[place])) << row;
  }
}

// What one row gives does not depend on the others, to the bit.
TEST_P(CachedLogits, OfAStepHaveTheSameBitsInEveryBatch) {
  const auto model = load_generator(GetParam());
  CachedLanguageModel cached(*model);
  const Tokens prompts(11, kPrompts[0]);
  cached.begin(prompts, 8);
  const auto many = cached.next(std::vector<int64_t>(11, 17));
  cached.select_rows({4});
  const auto later = cached.next({12});
  cached.begin(prompts, 8);
  cached.select_rows({4});
  EXPECT_TRUE(at::equal(cached.next({17})[0], many[4]));
  EXPECT_TRUE(at::equal(cached.next({12}), later));
}

INSTANTIATE_TEST_SUITE_P(Folders, CachedLogits,
                         ::testing::Values("gpt2", "gpt2_options", "llama", "llama_tied",
                                           "llama_biases", "mistral", "qwen2", "t5", "t5_v1_1",
                                           "t5_v1_1_tied"),
                         [](const auto& folder) { return folder.param; });

TEST(CachedModel, ComputesAndRemembersInTheModelsDtype) {
  const auto model = load_generator("llama");
  CachedLanguageModel cached(*model);
  const auto exact = cached.begin(kPrompts, 8);
  const int64_t bytes = cached.cache_bytes();
  // Two layers of keys and values, two heads of 8, three rows of 12 + 8 tokens.
  EXPECT_EQ(bytes, int64_t{2} * 2 * 2 * 8 * 3 * 20 * 4);
  for (auto& parameter : model->parameters()) parameter.set_data(parameter.to(at::kBFloat16));
  const auto rounded = cached.begin(kPrompts, 8);
  EXPECT_EQ(rounded.scalar_type(), at::kBFloat16);
  EXPECT_EQ(cached.cache_bytes(), bytes / 2);
  EXPECT_TRUE(at::allclose(rounded.to(at::kFloat), exact, 0.1, 0.1));
  const auto next = cached.next(kNext[0]);
  EXPECT_TRUE(at::allclose(next[0].to(at::kFloat),
                           whole_logits(*model, kPrompts[0], {kNext[0][0]}).to(at::kFloat), 0.1,
                           0.1));
}

// What is promised before there is a cache is what one takes.
TEST_P(CachedLogits, TakeTheBytesThatWereForeseen) {
  const auto model = load_generator(GetParam());
  CachedLanguageModel cached(*model);
  cached.begin(kPrompts, 8);
  const auto size = generation::cache_size(*model);
  const int64_t longest = 12, num_rows = 3;
  const int64_t tokens = model->is_encoder_decoder() ? 1 + 8 : longest + 8;
  EXPECT_EQ(cached.cache_bytes(),
            num_rows * 4 * (tokens * size.numel_per_token + longest * size.numel_per_source_token));
}

// Rows of unequal lengths hide columns that were never written, in memory that others had before.
TEST(CachedModel, IsNotDisturbedByWhatLayInMemory) {
  const auto poison = [] {
    std::vector<at::Tensor> held;
    for (int i = 0; i < 64; ++i) {
      held.push_back(at::full({2, 2, 6, 8}, std::numeric_limits<float>::quiet_NaN(),
                              at::TensorOptions().dtype(at::kBFloat16)));
    }
  };
  const auto model = load_generator("llama");
  for (auto& parameter : model->parameters()) parameter.set_data(parameter.to(at::kBFloat16));
  CachedLanguageModel cached(*model);
  poison();
  cached.begin({{5}, {6, 7, 8}}, 3);
  for (const int64_t token : {9, 10, 11}) {
    EXPECT_TRUE(cached.next({token, token}).isfinite().all().item<bool>());
  }
}

TEST(CachedModel, IsRefusedWhereItCannotGenerate) {
  const auto bert = load_decoder("bert");
  bert->eval();
  EXPECT_THAT(message_of([&] { CachedLanguageModel cached(*bert); }),
              ::testing::HasSubstr("BertForMaskedLM makes no text"));
  const auto training = load_decoder("llama");
  training->train();
  EXPECT_THAT(message_of([&] { CachedLanguageModel cached(*training); }),
              ::testing::HasSubstr("training mode"));
}

TEST(CachedModel, SaysWhenItsRoomIsUsedUp) {
  const auto model = load_generator("llama");
  CachedLanguageModel cached(*model);
  cached.begin({{5, 6}}, 1);
  cached.next({7});
  EXPECT_THAT(message_of([&] { cached.next({7}); }), ::testing::HasSubstr("made for 3"));
}

}  // namespace
}  // namespace fullshard::testing
