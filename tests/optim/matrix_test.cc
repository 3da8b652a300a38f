// Every optimizer in every compute dtype, strategy and number of ranks against the same mathematics
// written naively on whole tensors, and with the same bits for all strategies.
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <cmath>

#include "fullshard/optim/adagrad.h"
#include "fullshard/optim/adamw.h"
#include "fullshard/optim/lamb.h"
#include "fullshard/optim/lion.h"
#include "fullshard/optim/sgd.h"
#include "tests/optim/fixed_gradients.h"

namespace fullshard::testing {
namespace {

// Two states for each parameter, zero at first.
struct NaiveStates {
  std::map<std::string, std::pair<at::Tensor, at::Tensor>> of;

  std::pair<at::Tensor, at::Tensor>& at(const std::string& name, const at::Tensor& like) {
    if (!of.contains(name)) of[name] = {at::zeros_like(like), at::zeros_like(like)};
    return of[name];
  }
};

NaiveStep naive_adam(const AdamWOptions& o) {
  auto states = std::make_shared<NaiveStates>();
  return [=](const std::string& name, const at::Tensor& p, at::Tensor g, int step) {
    auto& [m, v] = states->at(name, p);
    if (!o.adam_w_mode) g = g + p * o.weight_decay;
    m = m * o.beta1 + g * (1 - o.beta1);
    v = v * o.beta2 + g * g * (1 - o.beta2);
    const double c1 = o.bias_correction ? 1 - std::pow(o.beta1, step) : 1;
    const double c2 = o.bias_correction ? 1 - std::pow(o.beta2, step) : 1;
    const auto decayed = o.adam_w_mode ? p * (1 - o.lr * o.weight_decay) : p;
    return decayed - o.lr * (m / c1) / ((v / c2).sqrt() + o.epsilon);
  };
}

NaiveStep naive_sgd(const SgdOptions& o) {
  auto states = std::make_shared<NaiveStates>();
  return [=](const std::string& name, const at::Tensor& p, at::Tensor g, int step) {
    auto& buffer = states->at(name, p).first;
    g = g + p * o.weight_decay;
    buffer = step == 1 ? g : buffer * o.momentum + g * (1 - o.dampening);
    return p - o.lr * (o.nesterov ? g + buffer * o.momentum : buffer);
  };
}

NaiveStep naive_adagrad(const AdagradOptions& o) {
  auto states = std::make_shared<NaiveStates>();
  return [=](const std::string& name, const at::Tensor& p, at::Tensor g, int) {
    auto& sum = states->at(name, p).first;
    g = g + p * o.weight_decay;
    sum = sum + g * g;
    return p - o.lr * g / (sum.sqrt() + o.epsilon);
  };
}

NaiveStep naive_lion(const LionOptions& o) {
  auto states = std::make_shared<NaiveStates>();
  return [=](const std::string& name, const at::Tensor& p, at::Tensor g, int) {
    auto& m = states->at(name, p).first;
    const auto direction = (m * o.beta1 + g * (1 - o.beta1)).sign();
    m = m * o.beta2 + g * (1 - o.beta2);
    return p * (1 - o.lr * o.weight_decay) - o.lr * direction;
  };
}

NaiveStep naive_lamb(const LambOptions& o) {
  auto states = std::make_shared<NaiveStates>();
  return [=](const std::string& name, const at::Tensor& p, at::Tensor g, int step) {
    auto& [m, v] = states->at(name, p);
    m = m * o.beta1 + g * (1 - o.beta1);
    v = v * o.beta2 + g * g * (1 - o.beta2);
    const auto root = o.eps_inside_sqrt ? (v + o.epsilon).sqrt() : v.sqrt() + o.epsilon;
    const auto direction = m / root + p * o.weight_decay;
    const double ratio =
        std::clamp((p.norm() / direction.norm()).item<double>(), o.min_coeff, o.max_coeff);
    const double correction =
        o.bias_correction ? std::sqrt(1 - std::pow(o.beta2, step)) / (1 - std::pow(o.beta1, step))
                          : 1;
    return p - o.lr * correction * ratio * direction;
  };
}

struct Subject {
  std::string name;
  MakeOptimizer make;
  std::function<NaiveStep()> naive;
};

template <class Kind, class Options>
Subject subject(const std::string& name, const Options& options,
                NaiveStep (*naive)(const Options&)) {
  return {name, [=](ShardedModel& model) { return std::make_unique<Kind>(model, options); },
          [=] { return naive(options); }};
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
