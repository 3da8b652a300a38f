// SPDX-License-Identifier: Apache-2.0
// The choice of a token against a naive reference, written straight from the definitions.
#include "fullshard/generation/sampling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <numeric>

#include "fullshard/data/random.h"
#include "fullshard/generation/cached_language_model.h"
#include "fullshard/generation/generate.h"
#include "fullshard/generation/logits_rules.h"
#include "tests/generation/fixture_models.h"

namespace fullshard::testing {
namespace {

using generation::Candidate;

// Probabilities of all tokens: one filter after the other over the whole vocabulary.
std::vector<double> naive_probabilities(std::vector<double> scores,
                                        const GenerateOptions& options) {
  const double none = -std::numeric_limits<double>::infinity();
  const auto softmax = [&] {
    std::vector<double> result;
    const double highest = *std::max_element(scores.begin(), scores.end());
    double sum = 0;
    for (const double score : scores) sum += std::exp(score - highest);
    for (const double score : scores) result.push_back(std::exp(score - highest) / sum);
    return result;
  };
  for (double& score : scores) score /= options.temperature;
  if (options.top_k > 0 && options.top_k < static_cast<int64_t>(scores.size())) {
    std::vector<double> sorted = scores;
    std::sort(sorted.rbegin(), sorted.rend());
    const double least = sorted[static_cast<size_t>(options.top_k - 1)];
    for (double& score : scores) score = score < least ? none : score;
  }
  if (options.top_p < 1) {
    const auto probabilities = softmax();
    std::vector<size_t> order(scores.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return probabilities[a] > probabilities[b]; });
    double before = 0;  // of all likelier ones: the nucleus is full when they have top_p
    for (const size_t token : order) {
      if (before >= options.top_p) scores[token] = none;
      before += probabilities[token];
    }
  }
  if (options.min_p > 0) {
    const auto probabilities = softmax();
    const double most = *std::max_element(probabilities.begin(), probabilities.end());
    for (size_t token = 0; token < scores.size(); ++token) {
      if (probabilities[token] < options.min_p * most) scores[token] = none;
    }
  }
  return softmax();
}

std::vector<GenerateOptions> sampling_cases() {
  std::vector<GenerateOptions> cases;
  for (const auto& [temperature, top_k, top_p, min_p] :
       std::vector<std::tuple<double, int64_t, double, double>>{{1, 0, 1, 0},
                                                                {0.7, 0, 1, 0},
                                                                {1.6, 5, 1, 0},
                                                                {1, 0, 0.8, 0},
                                                                {1, 0, 0.05, 0},
                                                                {1, 1, 1, 0},
                                                                {1.3, 0, 1, 0.3},
                                                                {0.9, 12, 0.7, 0.1},
                                                                {2, 30, 0.95, 0.02}}) {
    GenerateOptions options;
    options.do_sample = true;
    options.temperature = temperature;
    options.top_k = top_k;
    options.top_p = top_p;
    options.min_p = min_p;
    cases.push_back(options);
  }
  return cases;
}

std::vector<float> some_scores(uint64_t seed, size_t count = 40) {
  data::CounterRandom random(seed, 0, 0);
  std::vector<float> scores;
  for (size_t i = 0; i < count; ++i) scores.push_back(static_cast<float>(random.uniform() * 8 - 4));
  return scores;
}

TEST(Sampling, HasTheProbabilitiesOfTheDefinitions) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const auto scores = some_scores(seed);
    for (const auto& options : sampling_cases()) {
      const auto expected = naive_probabilities({scores.begin(), scores.end()}, options);
      std::vector<double> found(scores.size(), 0);
      for (const Candidate& one : generation::candidates_of(scores, options)) {
        found[static_cast<size_t>(one.token)] = one.probability;
      }
      for (size_t token = 0; token < scores.size(); ++token) {
        EXPECT_NEAR(found[token], expected[token], 1e-9) << token;
      }
    }
  }
}

TEST(Sampling, TellsScoresWithoutProbabilities) {
  const float infinity = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const auto have = [](const std::vector<float>& scores) {
    return generation::have_probabilities(scores);
  };
  EXPECT_TRUE(have({1, -2, -infinity}));
  EXPECT_FALSE(have({1, nan, 2}));
  EXPECT_FALSE(have({1, 2, infinity}));
  EXPECT_FALSE(have({-infinity, -infinity}));
}

TEST(Sampling, NeverDrawsWhatIsForbidden) {
  std::vector<float> scores = some_scores(1);
  const float none = -std::numeric_limits<float>::infinity();
  for (size_t token = 0; token < scores.size(); token += 2) scores[token] = none;
  GenerateOptions options;
  options.top_k = 0;
  for (const Candidate& one : generation::candidates_of(scores, options)) {
    EXPECT_EQ(one.token % 2, 1);
  }
}

TEST(Sampling, DrawsByTheIntervalsOfTokens) {
  const std::vector<Candidate> candidates = {{2, 0.25}, {5, 0.5}, {9, 0.25}};
  EXPECT_EQ(generation::drawn_token(candidates, 0), 2);
  EXPECT_EQ(generation::drawn_token(candidates, 0.2499), 2);
  EXPECT_EQ(generation::drawn_token(candidates, 0.25), 5);
  EXPECT_EQ(generation::drawn_token(candidates, 0.7499), 5);
  EXPECT_EQ(generation::drawn_token(candidates, 0.75), 9);
  EXPECT_EQ(generation::drawn_token(candidates, std::nextafter(1.0, 0.0)), 9);
}

TEST(Sampling, OfManySequencesHasTheModelsDistribution) {
  const auto model = load_generator("llama");
  CachedLanguageModel cached(*model);
  GenerateOptions options;
  options.do_sample = true;
  options.top_k = 6;
  options.max_new_tokens = 1;
  options.num_return_sequences = 4000;
  const std::vector<int64_t> prompt = {5, 17, 30};
  std::map<int64_t, int> counts;
  for (const auto& result : generate(cached, {{prompt, 3}}, options)) ++counts[result.tokens[0]];
  const auto logits = cached.begin({prompt}, 1)[0].contiguous();
  const auto* first = logits.const_data_ptr<float>();
  const auto expected = naive_probabilities({first, first + logits.numel()}, options);
  double chi_squared = 0;
  int total = 0;
  for (size_t token = 0; token < expected.size(); ++token) {
    const int count = counts[static_cast<int64_t>(token)];
    if (expected[token] == 0) {
      EXPECT_EQ(count, 0);
      continue;
    }
    const double mean = expected[token] * 4000;
    chi_squared += (count - mean) * (count - mean) / mean;
    total += count;
  }
  EXPECT_EQ(total, 4000);
  EXPECT_LT(chi_squared, 20.5);  // five degrees of freedom: one in a thousand is larger
}

// Token by token over whole sequences, without a cache, without batches.
std::vector<int64_t> naive_sequence(LanguageModel& model, const std::vector<int64_t>& prompt,
                                    const GenerateOptions& options, uint64_t number,
                                    uint64_t sequence) {
  const at::NoGradGuard no_grad;
  data::CounterRandom random(options.seed, number, sequence);
  std::vector<int64_t> tokens = prompt;
  for (int64_t step = 0; step < options.max_new_tokens; ++step) {
    const auto ids = at::tensor(tokens, at::TensorOptions().dtype(at::kLong)).unsqueeze(0);
    const auto last = model.forward({.input_ids = ids}).logits[0][ids.size(1) - 1].contiguous();
    const auto* first = last.const_data_ptr<float>();
    const auto probabilities = naive_probabilities({first, first + last.numel()}, options);
    const double uniform = random.uniform();
    double sum = 0;
    int64_t token = -1;
    while (sum <= uniform) sum += probabilities[static_cast<size_t>(++token)];
    tokens.push_back(token);
  }
  return {tokens.begin() + static_cast<std::ptrdiff_t>(prompt.size()), tokens.end()};
}

TEST(Sampling, GivesTheIdsOfANaiveLoopForEverySeed) {
  const std::vector<std::vector<int64_t>> prompts = {{5, 17, 30}, {9}, {4, 4, 8, 21, 33, 12, 7}};
  for (const std::string name : {"llama", "gpt2", "mistral"}) {
    const auto model = load_generator(name);
    CachedLanguageModel cached(*model);
    for (auto options : sampling_cases()) {
      options.max_new_tokens = 9;
      options.num_return_sequences = 2;
      options.seed = 11;
      const auto results = generate(cached, numbered(prompts), options);
      ASSERT_EQ(results.size(), 6u);
      for (const auto& result : results) {
        const auto number = static_cast<uint64_t>(result.prompt);
        EXPECT_EQ(result.tokens, naive_sequence(*model, prompts[number], options, number,
                                                static_cast<uint64_t>(result.number)))
            << name << " prompt " << number << " sequence " << result.number;
      }
    }
  }
}

TEST(LogProbabilities, AreThoseOfTheModelWhateverWasDrawnFrom) {
  const auto model = load_generator("llama");
  CachedLanguageModel cached(*model);
  GenerateOptions options;
  options.do_sample = true;
  options.temperature = 3;
  options.repetition_penalty = 1.5;
  options.max_new_tokens = 3;
  options.wants_logprobs = true;
  const std::vector<int64_t> prompt = {5, 17, 30};
  const auto result = generate(cached, {{prompt, 0}}, options)[0];
  ASSERT_EQ(result.logprobs.size(), 3u);
  auto logits = cached.begin({prompt}, 4);
  for (size_t step = 0; step < 3; ++step) {
    const auto expected = logits[0].log_softmax(0)[result.tokens[step]].item<double>();
    EXPECT_NEAR(result.logprobs[step], expected, 1e-5);
    logits = cached.next({result.tokens[step]});
  }
}

TEST(LogitsRules, PenaliseEveryTokenOnce) {
  std::vector<float> scores = {1, -1, 2, -2, 4};
  generation::penalise_repetition(scores, std::vector<int64_t>{0, 1, 1, 1, 4, 99}, 2);
  EXPECT_THAT(scores, ::testing::ElementsAre(0.5F, -2, 2, -2, 2));
}

TEST(LogitsRules, ForbidWhatWouldRepeatAnNgram) {
  const float none = -std::numeric_limits<float>::infinity();
  std::vector<float> scores(6, 0);
  // "1 2" came before 3 and before 5.
  generation::forbid_repeated_ngrams(scores, std::vector<int64_t>{1, 2, 3, 1, 2, 5, 1, 2}, 3);
  EXPECT_THAT(scores, ::testing::ElementsAre(0, 0, 0, none, 0, none));
  scores.assign(6, 0);
  generation::forbid_repeated_ngrams(scores, std::vector<int64_t>{1, 2}, 4);  // too short for one
  EXPECT_THAT(scores, ::testing::Each(0));
}

}  // namespace
}  // namespace fullshard::testing
