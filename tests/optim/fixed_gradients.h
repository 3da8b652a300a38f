// SPDX-License-Identifier: Apache-2.0
// A model whose gradients are what the test says, whatever its parameters: the loss is Σ w·x, so
// that x is the gradient of w.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "fullshard/engine/sharded_model.h"
#include "fullshard/nn/unit.h"
#include "fullshard/optim/optimizer.h"
#include "fullshard/optim/schedules/lr_schedule.h"

namespace fullshard::testing {

struct FixedPartImpl : Unit {
  FixedPartImpl();
  at::Tensor forward(at::Tensor x);
  at::Tensor norm_weight, bias;
};
FULLSHARD_UNIT(FixedPart);

// Parameters weight [4, 11], and norm_weight [19] and bias [3] of part and tail: cuts fall
// anywhere.
struct FixedImpl : Unit {
  FixedImpl();
  at::Tensor forward(at::Tensor x);
  at::Tensor weight;
  FixedPart part{nullptr}, tail{nullptr};
};
FULLSHARD_UNIT(Fixed);

constexpr int64_t kFixedNumel = 44 + 2 * 22;

// The same values on every call.
Fixed make_fixed(at::ScalarType dtype = at::kFloat);
// Multiples of 1/64 below 2 in absolute value: exact in bf16 and fp16.
at::Tensor fixed_gradients(int step, int rank);

// Names and values of whole parameters.
using Values = std::map<std::string, at::Tensor>;

// Every rank's pieces of the masters and of the states, put together.
struct FixedOutcome {
  Values masters;
  std::vector<Values> states;
  std::vector<double> norms;
};

struct FixedRun {
  int ranks = 1;
  ShardOptions shard = {};
  at::ScalarType dtype = at::kFloat;  // of the parameters, so of the masters
  int steps = 4;
  double clip = 0.5;                                           // 0: none
  std::function<std::unique_ptr<LrSchedule>()> schedule = {};  // none: the optimizer's own rates
};

using MakeOptimizer = std::function<std::unique_ptr<Optimizer>(ShardedModel&)>;
FixedOutcome train_fixed(const FixedRun& run, const MakeOptimizer& make);

// The mean gradient of a step as the engine forms it, by name, and the factor of clipping.
Values mean_gradients(int step, int ranks);
double clip_factor(const Values& gradients, double max_norm);

void expect_same_bits(const Values& actual, const Values& expected, const std::string& what);
void expect_close(const Values& actual, const Values& expected, const std::string& what,
                  double tolerance = 1e-6);

// The same mathematics on whole tensors, in fp64.
using NaiveStep = std::function<at::Tensor(const std::string& name, const at::Tensor& parameter,
                                           const at::Tensor& gradient, int step)>;
Values train_naively(const FixedRun& run, const NaiveStep& step);

}  // namespace fullshard::testing
