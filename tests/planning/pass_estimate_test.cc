// SPDX-License-Identifier: Apache-2.0
// What `generate` and `eval` are planned to take beside the weights, and what real passes take.
#include "fullshard/planning/pass_estimate.h"

#include <ATen/Context.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "fullshard/base/bytes.h"
#include "fullshard/generation/batch_context.h"
#include "fullshard/generation/cached_language_model.h"
#include "fullshard/generation/generate.h"
#include "fullshard/models/model_folder.h"
#include "fullshard/nn/deferred.h"
#include "fullshard/planning/planned_run.h"
#include "fullshard/tensor/operator_watch.h"
#include "fullshard/tensor/pretence.h"
#include "tests/planning/counting_allocator.h"
#include "tests/planning/measured_run.h"

namespace fullshard::testing {
namespace {

using planning::GenerationBatch;

constexpr double kPassTolerance = 0.02;

[[maybe_unused]] const bool passes_pretend_gpus = (tensor::pretend_gpus(), true);

std::string with_layers(const std::string& preset, const nlohmann::json& changes) {
  auto config = nlohmann::json::parse(preset_config(preset));
  config.update(changes);
  return config.dump();
}

// Wide enough that the numbers of relative positions, which are not counted on a CPU, do not
// matter.
const nlohmann::json kSmallT5 = {{"num_layers", 2}, {"num_decoder_layers", 2}};
const nlohmann::json kSmallGpt2 = {
    {"n_layer", 2}, {"n_embd", 96}, {"n_head", 3}, {"vocab_size", 1000}};

std::shared_ptr<LanguageModel> deferred_of(const std::string& config) {
  const DeferredScope scope;
  return make_model(config, "test", {});
}

std::shared_ptr<LanguageModel> real_of(const std::string& config, at::ScalarType dtype) {
  const at::NoGradGuard no_grad;
  auto model = make_model(config, "test", {});
  for (auto& parameter : model->parameters()) {
    parameter.set_requires_grad(false);
    parameter.set_data(parameter.to(dtype).fill_(0.01));
  }
  model->eval();
  return model;
}

// The whole command's loop, of prompts as long as planned.
int64_t measured_generation(LanguageModel& model, const GenerationBatch& batch) {
  install_counting_allocator();
  std::vector<GeneratePrompt> prompts;
  for (int64_t number = 0; number < batch.num_prompts; ++number) {
    prompts.push_back({std::vector<int64_t>(static_cast<size_t>(batch.prompt_tokens), 3), number});
  }
  const auto watch = std::make_shared<TotalWatch>();
  const tensor::WatchScope watched(watch);
  CachedLanguageModel cached(model, {.prefill_tokens = batch.prefill_tokens});
  GenerateOptions options;
  options.batch = batch.num_prompts;
  options.max_new_tokens = batch.new_tokens;
  options.num_beams = batch.rows_per_prompt;
  generate(cached, prompts, options);
  return watch->peak();
}

void expect_as_generated(const std::string& config, at::ScalarType dtype,
                         const GenerationBatch& batch) {
  const auto planned = planning::generation_bytes(deferred_of(config), {.dtype = dtype}, batch);
  const auto model = real_of(config, dtype);
  const auto found = static_cast<double>(measured_generation(*model, batch));
  EXPECT_GT(planned.cache, 0);
  EXPECT_GT(planned.activations, 0);
  EXPECT_NEAR(static_cast<double>(planned.cache + planned.activations), found,
              kPassTolerance * found)
      << "cache " << planned.cache << ", activations " << planned.activations;
}

TEST(PassEstimate, IsWhatGenerationTakes) {
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    SCOPED_TRACE(c10::toString(dtype));
    const auto llama = preset_config("llama-tiny");
    expect_as_generated(llama, dtype, {.num_prompts = 4, .prompt_tokens = 100, .new_tokens = 20});
    expect_as_generated(
        llama, dtype,
        {.num_prompts = 2, .prompt_tokens = 100, .new_tokens = 20, .prefill_tokens = 32});
    expect_as_generated(with_layers("gpt2-124m", kSmallGpt2), dtype,
                        {.num_prompts = 3, .prompt_tokens = 200, .new_tokens = 5});
    expect_as_generated(with_layers("t5-small", kSmallT5), dtype,
                        {.num_prompts = 3, .prompt_tokens = 120, .new_tokens = 8});
  }
}

TEST(PassEstimate, CountsBeams) {
  expect_as_generated(
      preset_config("llama-tiny"), at::kFloat,
      {.num_prompts = 2, .rows_per_prompt = 4, .prompt_tokens = 64, .new_tokens = 16});
}

TEST(PassEstimate, IsWhatAnEvaluationTakes) {
  install_counting_allocator();
  for (const auto& config : {preset_config("llama-tiny"), with_layers("t5-small", kSmallT5)}) {
    const int64_t planned = planning::evaluation_bytes(deferred_of(config), {}, 4, 128, 64);
    const auto model = real_of(config, at::kFloat);
    const at::NoGradGuard no_grad;
    const auto watch = std::make_shared<TotalWatch>();
    const tensor::WatchScope watched(watch);
    model->forward(
        planning::planned_inputs(*model, 4, {.sequence_length = 128, .target_length = 64}));
    const auto found = static_cast<double>(watch->peak());
    EXPECT_NEAR(static_cast<double>(planned), found, kPassTolerance * found);
  }
}

// No memory is taken for it, and a GPU need not be there.
TEST(PassEstimate, PlansModelsThatNoMachineHereHolds) {
  const auto bytes = planning::generation_bytes(
      deferred_of(preset_config("llama-8b")),
      {.device = at::Device(at::kCUDA, 0), .dtype = at::kBFloat16},
      {.num_prompts = 16, .prompt_tokens = 1536, .new_tokens = 512, .prefill_tokens = 512});
  // 32 layers of 8 heads of 128, keys and values.
  EXPECT_EQ(bytes.cache, int64_t{16} * (1536 + 512) * 32 * 8 * 128 * 2 * 2);
  EXPECT_GT(bytes.activations, 100 * kMiB);
  EXPECT_LT(bytes.activations, 8 * kGiB);
}

class KernelsOfAPlan : public tensor::OperatorWatch {
 public:
  void ran(const tensor::OperatorCall& call, int64_t) override { names.insert(call.name); }
  void marked(int64_t, int64_t) override {}
  void held(int64_t, int64_t) override {}
  void held_host(int64_t) override {}
  void moved_on_disk(int64_t, int64_t, bool) override {}
  void waited_for_disk(int64_t) override {}

  std::set<std::string> names;
};

// A plan of a GPU goes the way of a GPU, down to kernels that nobody launches.
TEST(PassEstimate, NotesTheKernelsOfGeneration) {
  const auto watch = std::make_shared<KernelsOfAPlan>();
  const tensor::OperatorWatchScope watched(watch);
  const auto model = deferred_of(preset_config("llama-tiny"));
  const auto bytes = planning::generation_bytes(
      model, {.device = at::Device(at::kCUDA, 0), .dtype = at::kBFloat16},
      {.num_prompts = 1, .prompt_tokens = 8, .new_tokens = 4});
  EXPECT_GT(bytes.activations, 0);
  EXPECT_THAT(watch->names, ::testing::IsSupersetOf({"few_rows", "step_attention"}));
}

}  // namespace
}  // namespace fullshard::testing
