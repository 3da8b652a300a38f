// SPDX-License-Identifier: Apache-2.0
// Forwards and backwards that a GPU repeats as a graph, against the same ones issued one by one.
#include "fullshard/train/run/micro_batch_pass.h"

#include <ATen/Context.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "fullshard/models/common/unpadded.h"
#include "fullshard/optim/adamw.h"
#include "fullshard/train/apply_plan.h"
#include "fullshard/train/model_source.h"
#include "fullshard/train/model_weights.h"
#include "tests/gpu.h"
#include "tests/train/curves.h"
#include "tests/train/fixture_models.h"

namespace fullshard::testing {
namespace {

constexpr int kPassSteps = 18;

struct PassRun {
  std::vector<double> losses, norms;
  int64_t num_repeated = 0;
  int64_t reductions = 0;
  uint64_t random_offset = 0;  // where the last pass left the generator
  std::string why_not{};
};

struct PassCase {
  std::string folder = "llama";
  int micro_batches = 1;
  std::string precision = "bf16";
  bool recompute = false;
  bool sleeps = false;  // after two thirds of the steps
  bool drops = false;
  bool pads = false;  // rows of other lengths in every batch
};

// Every dropout of a configuration set to a tenth.
ModelSource with_dropout(ModelSource source) {
  auto config = nlohmann::json::parse(source.config_json);
  for (const auto* key : {"attn_pdrop", "embd_pdrop", "resid_pdrop", "hidden_dropout_prob",
                          "attention_probs_dropout_prob", "dropout_rate"}) {
    if (config.contains(key)) config[key] = 0.1;
  }
  source.config_json = config.dump();
  return source;
}

// Rows of lengths that change from batch to batch, 20 of 48 tokens and 4 of filler.
void pad(ModelInputs& inputs, int step) {
  const int64_t columns = inputs.input_ids.size(1);
  std::vector<int64_t> lengths = {columns - step % 4, 1 + step % 4, 4, 15 - columns};
  inputs.attention_mask = at::zeros_like(inputs.input_ids);
  for (int64_t row = 0; row < std::ssize(lengths); ++row) {
    const int64_t length = lengths[static_cast<size_t>(row)];
    inputs.attention_mask[row].narrow(0, 0, length).fill_(1);
  }
  if (inputs.labels.sizes() == inputs.input_ids.sizes()) {
    inputs.labels.masked_fill_(inputs.attention_mask == 0, -100);
  } else {
    inputs.labels.narrow(1, 3, 3).narrow(0, step % 2, 3).fill_(-100);
    const std::vector<int64_t> labels =
        step % 2 == 0 ? std::vector<int64_t>{3, 3, 3, 6} : std::vector<int64_t>{6, 3, 3, 3};
    inputs.unpadded_labels = models::make_unpadded(labels, 6, kGpu, 6);
  }
  inputs.unpadded = models::make_unpadded(lengths, columns, kGpu, 8);
}

ModelInputs pass_inputs(const LanguageModel& model, const PassCase& which, int step, int part) {
  at::manual_seed(1000 + 10 * step + part);
  const int64_t length = step % 6 == 5 ? 8 : 12;  // another shape now and then
  const auto tokens = [&](int64_t columns) {
    return at::randint(3, model.vocabulary(), {4, columns}, at::kLong).to(kGpu);
  };
  ModelInputs inputs{.input_ids = tokens(length)};
  inputs.labels = tokens(model.is_encoder_decoder() ? 6 : length);
  if (which.pads) pad(inputs, step);
  return inputs;
}

// The rate changes with every step, the weights of losses with every micro-batch.
PassRun run_passes(const PassCase& which, bool may_repeat) {
  const std::string recompute = which.recompute ? "  fsdp_activation_checkpointing: true\n" : "";
  const auto plan = ::fullshard::Plan::parse(
      fsdp_configuration("FULL_SHARD") + recompute + "mixed_precision: " + which.precision + "\n",
      "test", {.ranks = 1});
  const ModelSource plain = find_model(kModels + which.folder);
  const ModelSource source = which.drops ? with_dropout(plain) : plain;
  const auto model = make_deferred_model(source);
  ShardedModel sharded(model, World::single(kGpu), shard_options_of(plan));
  load_model_weights(source.folder, *model, sharded);
  model->train();
  AdamW optimizer(sharded, {.lr = 1e-3});
  Stepper stepper(sharded, optimizer,
                  {.max_grad_norm = 0.5, .accumulation_steps = which.micro_batches});
  train::MicroBatchPass pass(*model, sharded, stepper, may_repeat);
  PassRun run;
  for (int step = 0; step < kPassSteps; ++step) {
    if (which.sleeps && step == 2 * kPassSteps / 3) {
      (void)sharded.sleep();
      (void)sharded.wake();
    }
    optimizer.set_lr(1e-3 / (1 + step));
    for (int part = 0; part < which.micro_batches; ++part) {
      const auto loss =
          pass.run(pass_inputs(*model, which, step, part), 1.0 + 0.25 * part + 0.125 * (step % 3));
      run.losses.push_back(loss.item<double>());
    }
    run.norms.push_back(stepper.step().grad_norm);
  }
  run.num_repeated = pass.num_repeated();
  run.reductions = sharded.counters().reductions;
  run.why_not = pass.why_not();
  run.random_offset = at::globalContext().defaultGenerator(kGpu).get_offset();
  return run;
}

// Attention's backward adds in the order in which blocks come, unless told not to.
class DrawnPasses : public ::testing::Test {
 protected:
  void SetUp() override { at::globalContext().setDeterministicAlgorithms(true, true); }
  void TearDown() override { at::globalContext().setDeterministicAlgorithms(false, false); }
};

class RepeatedPasses : public DrawnPasses, public ::testing::WithParamInterface<PassCase> {};

TEST_P(RepeatedPasses, HaveTheBitsOfThoseThatTheHostIssues) {
  const auto plain = run_passes(GetParam(), false);
  const auto repeated = run_passes(GetParam(), true);
  EXPECT_EQ(plain.num_repeated, 0);
  EXPECT_EQ(plain.why_not, "it is off");
  EXPECT_EQ(repeated.why_not, "");
  EXPECT_GE(repeated.num_repeated, 4 * GetParam().micro_batches);
  EXPECT_EQ(repeated.losses, plain.losses);
  EXPECT_EQ(repeated.norms, plain.norms);
  EXPECT_EQ(repeated.reductions, plain.reductions);
  EXPECT_EQ(repeated.random_offset, plain.random_offset);
  EXPECT_EQ(plain.random_offset > 0, GetParam().drops);
}

TEST_F(DrawnPasses, AreNoneWhereRecomputedLayersDraw) {
  const PassCase which{.folder = "gpt2", .recompute = true, .drops = true};
  const auto plain = run_passes(which, false), asked = run_passes(which, true);
  EXPECT_EQ(asked.why_not, "layers that draw random numbers are computed again");
  EXPECT_EQ(asked.num_repeated, 0);
  EXPECT_EQ(asked.losses, plain.losses);
}

INSTANTIATE_TEST_SUITE_P(
    Cases, RepeatedPasses,
    ::testing::Values(PassCase{}, PassCase{.folder = "gpt2", .precision = "'no'"},
                      PassCase{.folder = "gpt2", .micro_batches = 3},
                      PassCase{.folder = "bert", .micro_batches = 2}, PassCase{.folder = "t5"},
                      PassCase{.recompute = true}, PassCase{.sleeps = true},
                      PassCase{.precision = "fp8"}, PassCase{.folder = "gpt2", .drops = true},
                      PassCase{.folder = "bert", .drops = true},
                      PassCase{.folder = "bert", .micro_batches = 2, .drops = true, .pads = true},
                      PassCase{.folder = "bert", .precision = "'no'", .pads = true},
                      PassCase{.folder = "t5", .drops = true, .pads = true},
                      PassCase{.folder = "t5", .micro_batches = 2, .drops = true}),
    [](const auto& which) { return "Case" + std::to_string(which.index); });

}  // namespace
}  // namespace fullshard::testing
