// SPDX-License-Identifier: Apache-2.0
// Every optimizer in every compute dtype, strategy and number of ranks against the same mathematics
// written naively on whole tensors, and with the same bits for all strategies.
#include <gtest/gtest.h>

#include "tests/optim/naive_optimizers.h"

namespace fullshard::testing {
namespace {

struct Subject {
  std::string name;
  MakeOptimizer make;
  std::function<NaiveStep()> naive;
};

template <class Kind, class Options>
Subject subject(const std::string& name, const Options& options,
                NaiveStep (*naive)(const OptionsOf<Options>&)) {
  return {name, [=](ShardedModel& model) { return std::make_unique<Kind>(model, options); },
          [=] { return naive(always(options)); }};
}

std::vector<Subject> subjects() {
  return {
      subject<AdamW>("AdamW", AdamWOptions{.lr = 1e-2, .weight_decay = 0.1}, naive_adam),
      subject<AdamW>(
          "Adam",
          AdamWOptions{
              .lr = 1e-2, .weight_decay = 0.1, .adam_w_mode = false, .bias_correction = false},
          naive_adam),
      subject<Sgd>("SGD",
                   SgdOptions{.lr = 1e-2, .momentum = 0.9, .weight_decay = 0.1, .nesterov = true},
                   naive_sgd),
      subject<Adagrad>("Adagrad", AdagradOptions{.lr = 1e-2, .weight_decay = 0.1}, naive_adagrad),
      subject<Lion>("Lion", LionOptions{.lr = 1e-3, .weight_decay = 0.1}, naive_lion),
      subject<Lamb>("LAMB", LambOptions{.lr = 1e-2, .weight_decay = 0.1}, naive_lamb)};
}

class EveryOptimizer : public ::testing::TestWithParam<int> {};

TEST_P(EveryOptimizer, EqualsNaiveMathematicsUnderEveryStrategy) {
  const auto subject = subjects()[GetParam()];
  for (const int ranks : {1, 2, 3}) {
    FixedRun run{.ranks = ranks};
    const auto naive = train_naively(run, subject.naive());
    for (const auto compute : {at::kFloat, at::kBFloat16, at::kHalf}) {
      std::optional<FixedOutcome> first;
      for (const int stage : {0, 1, 2, 3}) {
        const auto what = fmt::format("{}, {} ranks, {}, stage {}", subject.name, ranks,
                                      c10::toString(compute), stage);
        run.shard = {};
        run.shard.sharding.zero_stage = stage;
        run.shard.param_dtype = compute;
        const auto outcome = train_fixed(run, subject.make);
        expect_close(outcome.masters, naive, what);
        if (!first) first = outcome;
        expect_same_bits(outcome.masters, first->masters, what);
        for (size_t i = 0; i < outcome.states.size(); ++i) {
          expect_same_bits(outcome.states[i], first->states[i], what + ", state");
        }
        EXPECT_EQ(outcome.norms, first->norms) << what;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Matrix, EveryOptimizer, ::testing::Range(0, 6),
                         [](const auto& test) { return subjects()[test.param].name; });

TEST(Fp64Masters, AreUpdatedInFp64) {
  FixedRun run{.ranks = 2, .dtype = at::kDouble};
  for (const auto& subject : subjects()) {
    const auto naive = train_naively(run, subject.naive());
    // Clipping's factor and LAMB's ratio are fp32 numbers.
    expect_close(train_fixed(run, subject.make).masters, naive, subject.name,
                 subject.name == "LAMB" ? 1e-8 : 1e-13);
  }
}

}  // namespace
}  // namespace fullshard::testing
