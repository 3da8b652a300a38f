// SPDX-License-Identifier: Apache-2.0
// Plans beside real runs of the same model, and plans that no machine here could run.
#include "fullshard/planning/estimate.h"
#include "fullshard/base/bytes.h"

#include <ATen/ops/ones.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "fullshard/models/model_folder.h"
#include "fullshard/nn/deferred.h"
#include "fullshard/nn/unit.h"
#include "fullshard/planning/estimate_text.h"
#include "fullshard/tensor/pretence.h"
#include "tests/errors.h"
#include "tests/planning/measured_run.h"

namespace fullshard::testing {
namespace {

constexpr double kTolerance = 0.02;

// Autograd counts devices once, at the first backward of the process.
[[maybe_unused]] const bool pretends_gpus = (tensor::pretend_gpus(), true);

void expect_as_measured(const Case& run) {
  const auto all = planned(run);
  const auto& plan = all.on(tiers::Tier::device);
  const auto [found, on_disk] = measured(run);
  EXPECT_EQ(all.on(tiers::Tier::disk).peak_bytes, on_disk);
  EXPECT_NEAR(static_cast<double>(plan.peak_bytes), static_cast<double>(found),
              kTolerance * static_cast<double>(found))
      << "planned " << plan.peak_bytes << ", measured " << found << ", peak in the "
      << plan.peak_at;
}

std::string small_llama(int64_t vocabulary = 2000) {
  auto config = nlohmann::json::parse(preset_config("llama-tiny"));
  config["vocab_size"] = vocabulary;
  return config.dump();
}

std::string small_bert() {
  auto config = nlohmann::json::parse(preset_config("bert-base"));
  config["num_hidden_layers"] = 2;
  config["hidden_size"] = 96;
  config["num_attention_heads"] = 3;
  config["intermediate_size"] = 256;
  config["vocab_size"] = 1000;
  return config.dump();
}

std::string small_gpt2() {
  auto config = nlohmann::json::parse(preset_config("gpt2-124m"));
  config["n_layer"] = 2;
  config["n_embd"] = 96;
  config["n_head"] = 3;
  config["vocab_size"] = 1000;
  return config.dump();
}

std::string small_t5() {
  auto config = nlohmann::json::parse(preset_config("t5-small"));
  config["num_layers"] = 2;
  config["num_decoder_layers"] = 2;
  config["d_model"] = 96;
  config["d_ff"] = 256;
  config["num_heads"] = 2;
  config["vocab_size"] = 1000;
  return config.dump();
}

TEST(Estimate, IsWhatRunsHoldOnAllStagesAndRanks) {
  for (const int stage : {0, 1, 2, 3}) {
    for (const int ranks : {1, 2, 3}) {
      SCOPED_TRACE(fmt::format("stage {}, {} ranks", stage, ranks));
      expect_as_measured({.config = small_llama(), .ranks = ranks, .stage = stage});
    }
  }
}

TEST(Estimate, IsWhatOtherModelsHold) {
  for (const auto& config : {small_gpt2(), small_bert(), small_t5()}) {
    SCOPED_TRACE(config.substr(0, 60));
    expect_as_measured({.config = config, .ranks = 2});
  }
}

// Autograd keeps them where it makes them.
TEST(Estimate, IsWhatRunsHoldWithoutOneGradientBuffer) {
  for (const auto& config : {small_llama(), small_gpt2(), small_bert(), small_t5()}) {
    SCOPED_TRACE(config.substr(0, 60));
    expect_as_measured({.config = config, .ranks = 2, .stage = 2, .contiguous_gradients = false});
  }
}

TEST(Estimate, KnowsRecomputationAndPrecision) {
  expect_as_measured({.config = small_llama(), .ranks = 2, .micro_batch = 8, .recompute = true});
  for (const int64_t batch : {2, 8}) {
    for (const int ranks : {1, 2, 3}) {
      SCOPED_TRACE(fmt::format("bf16, {} ranks, {} examples", ranks, batch));
      expect_as_measured(
          {.config = small_llama(), .ranks = ranks, .micro_batch = batch, .precision = "bf16"});
    }
  }
}

TEST(Estimate, KnowsAdaptersAndTheirFrozenBase) {
  for (const int ranks : {1, 2}) {
    for (const int stage : {2, 3}) {
      for (const bool in_int8 : {false, true}) {
        SCOPED_TRACE(fmt::format("{} ranks, stage {}, int8 {}", ranks, stage, in_int8));
        Case run{.config = small_llama(), .ranks = ranks, .stage = stage, .precision = "bf16"};
        const auto whole = planned(run).on(tiers::Tier::device).rest_bytes;
        run.lora_rank = 4;
        run.base_in_int8 = in_int8;
        expect_as_measured(run);
        EXPECT_LT(planned(run).on(tiers::Tier::device).rest_bytes, whole / 2);
      }
    }
  }
}

TEST(Estimate, KnowsWhatRestsOnADisk) {
  const std::string folder = ::testing::TempDir();
  for (const int ranks : {1, 2}) {
    for (const char* what : {"optimizer:", "all:"}) {
      SCOPED_TRACE(fmt::format("{} on {} ranks", what, ranks));
      const Case run{.config = small_llama(), .ranks = ranks, .offload = what + folder};
      expect_as_measured(run);
      EXPECT_GT(planned(run).on(tiers::Tier::disk).peak_bytes, 0);
    }
  }
}

// What is planned for is not here.
TEST(Estimate, OfAFolderThatIsNotThereMakesNoFile) {
  const auto plan = planned({.config = small_llama(), .offload = "all:/does/not/exist"});
  const auto& disk = plan.on(tiers::Tier::disk);
  int64_t sum = 0;
  for (const int64_t bytes : disk.by_purpose) sum += bytes;
  EXPECT_EQ(sum, disk.peak_bytes);
  EXPECT_EQ(disk.rest_bytes, disk.peak_bytes);
  const std::string text = planning::estimate_text(plan, {.fits = true, .why = "fits"});
  EXPECT_THAT(text, ::testing::HasSubstr(" at most, in the optimizer's step\n"));
}

TEST(Estimate, RecomputationHoldsLess) {
  const Case kept{.config = small_llama(), .micro_batch = 8};
  Case again = kept;
  again.recompute = true;
  EXPECT_LT(planned(again).on(tiers::Tier::device).peak_bytes,
            planned(kept).on(tiers::Tier::device).peak_bytes * 3 / 4);
}

TEST(Estimate, SaysWhenItIsFullestAndWithWhat) {
  const auto plan = planned({.config = small_llama(), .ranks = 2, .micro_batch = 8});
  const auto& device = plan.on(tiers::Tier::device);
  EXPECT_THAT(device.peak_at, ::testing::HasSubstr("unit"));
  int64_t sum = 0;
  for (const int64_t bytes : device.by_purpose) sum += bytes;
  EXPECT_EQ(sum, device.peak_bytes);
  EXPECT_GT(device.by_purpose[static_cast<size_t>(tiers::Purpose::activations)], 0);
  EXPECT_LT(device.rest_bytes, device.peak_bytes);
}

TEST(Estimate, HasTheKeysThatArePromised) {
  const Case run{.config = small_llama()};
  const auto plan = planned(run);
  const auto verdict = planning::judge(plan, plan_of(run), {.device_bytes = 1000});
  EXPECT_FALSE(verdict.fits);
  EXPECT_FALSE(verdict.changes.empty());
  const auto json = nlohmann::json::parse(planning::estimate_json(plan, verdict));
  for (const char* key : {"fits", "ranks", "why", "device", "host", "disk"}) {
    EXPECT_TRUE(json.contains(key)) << key;
  }
  for (const char* key : {"rest_bytes", "peak_bytes", "peak_at", "by_purpose"}) {
    EXPECT_TRUE(json["device"].contains(key)) << key;
  }
}

std::string llama_70b() {
  auto config = nlohmann::json::parse(preset_config("llama-8b"));
  config["num_hidden_layers"] = 80;
  config["hidden_size"] = 8192;
  config["num_attention_heads"] = 64;
  config["intermediate_size"] = 28672;
  config["max_position_embeddings"] = 8192;
  return config.dump();
}

// Of the whole test program so far; under a sanitizer that is more, so only its growth is told.
int64_t most_resident_kib() {
  rusage usage = {};
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

TEST(Estimate, OfSeventyBillionParametersOnAThousandGpusTakesNoMemory) {
  const int64_t before = most_resident_kib();
  const auto start = std::chrono::steady_clock::now();
  std::shared_ptr<LanguageModel> model;
  {
    const DeferredScope scope;
    model = make_model(llama_70b(), "test", {});
  }
  const auto plan = Plan::from_words(
      "", "",
      {.flags = {{"--strategy", "FULL_SHARD"}, {"--micro-batch", "1"}, {"--precision", "bf16"}},
       .ranks = 1024});
  const auto result = estimate(
      model, plan, {.ranks = 1024, .device = at::Device(at::kCUDA, 0), .sequence_length = 4096});
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  RecordProperty("seconds", fmt::format("{}", elapsed.count()));
  const double per_rank = static_cast<double>(result.num_parameters) / 1024;
  // Masters in fp32 and two states are 12 bytes each, of which halves are the parameters; cuBLAS
  // has its workspaces.
  const auto own = static_cast<double>(result.on(tiers::Tier::device).rest_bytes - 128 * kMiB);
  EXPECT_GT(own, 12 * per_rank);
  EXPECT_LT(own, 13 * per_rank);
  EXPECT_LT(most_resident_kib() - before, 512 * 1024);
}

template <class Module>
Estimate estimate_of(Module& module) {
  const auto plan = Plan::parse(
      R"({"train_micro_batch_size_per_gpu": 8, "gradient_accumulation_steps": 1})", "ds.json");
  return estimate(module.ptr(), plan, {.ranks = 2}, [&](at::Device device) {
    return module->forward(at::ones({8, 4}, device)).mean();
  });
}

// Weights, gradients and two states of the sixteen weights and four biases.
TEST(Estimate, IsMadeOfAModuleOfOnesOwn) {
  auto linear = deferred<Wrap<torch::nn::Linear>>(4, 4);
  const Estimate result = estimate_of(linear);
  EXPECT_EQ(result.num_parameters, 20);
  EXPECT_GT(result.on(Tier::device).peak_bytes, result.on(Tier::device).rest_bytes);
  EXPECT_EQ(result.on(Tier::disk).peak_bytes, 0);
}

TEST(Estimate, NamesAnOperatorWhoseSizesNobodyKnows) {
  auto norm = deferred<Wrap<torch::nn::BatchNorm1d>>(4);
  EXPECT_EQ(message_of([&] { estimate_of(norm); }),
            "a plan does not know the sizes of what aten::native_batch_norm returns; libtorch "
            "knows no sizes for it either");
}

Estimate estimate_with(const std::string& config, const std::vector<FlagValue>& flags,
                       const EstimateOptions& options) {
  std::shared_ptr<LanguageModel> model;
  {
    const DeferredScope scope;
    model = make_model(config, "test", {});
  }
  return estimate(model, Plan::from_words("", "", {.flags = flags, .ranks = options.ranks}),
                  options);
}

// What every query has a number for with every key is not made, of any family.
TEST(Estimate, OfLongSequencesOnCpusTakesNoMemory) {
  const int64_t before = most_resident_kib();
  for (const auto& config : {small_gpt2(), small_bert(), small_t5()}) {
    SCOPED_TRACE(config.substr(0, 60));
    auto longer = nlohmann::json::parse(config);
    for (const auto* positions : {"n_positions", "max_position_embeddings"}) {
      if (longer.contains(positions)) longer[positions] = 131072;
    }
    for (const auto* dropout : {"attn_pdrop", "attention_probs_dropout_prob", "dropout_rate"}) {
      if (longer.contains(dropout)) longer[dropout] = 0.1;
    }
    const auto result =
        estimate_with(longer.dump(), {{"--micro-batch", "2"}}, {.sequence_length = 131072});
    EXPECT_GT(result.on(Tier::device).peak_bytes, 100 * kGiB);
    EXPECT_LT(most_resident_kib() - before, 512 * 1024);
  }
}

// The first micro-batch, the last and one between are what all are.
TEST(Estimate, OfManyMicroBatchesIsThatOfThree) {
  int64_t num_losses = 0;
  const auto peak_with = [&](const std::string& accumulate) {
    auto linear = deferred<Wrap<torch::nn::Linear>>(4, 4);
    const auto plan =
        Plan::parse(R"({"train_micro_batch_size_per_gpu": 8, "gradient_accumulation_steps": )" +
                        accumulate + "}",
                    "ds.json");
    num_losses = 0;
    const auto loss = [&](at::Device device) {
      ++num_losses;
      return linear->forward(at::ones({8, 4}, device)).mean();
    };
    return estimate(linear.ptr(), plan, {.ranks = 2}, loss).on(Tier::device).peak_bytes;
  };
  peak_with("2");
  EXPECT_EQ(num_losses, 2 * 2);
  const int64_t of_three = peak_with("3");
  EXPECT_EQ(peak_with("3000"), of_three);
  EXPECT_EQ(num_losses, 2 * 3);
}

// Keys that a window hides are masked, on GPUs by a tensor of their own.
TEST(Estimate, PlansWindowsShorterThanTheSequenceOnGpus) {
  auto config = nlohmann::json::parse(small_llama());
  config["architectures"] = {"MistralForCausalLM"};
  config["model_type"] = "mistral";
  const auto planned_with = [&](int64_t window) {
    config["sliding_window"] = window;
    std::shared_ptr<LanguageModel> model;
    {
      const DeferredScope scope;
      model = make_model(config.dump(), "test", {});
    }
    const auto plan = Plan::from_words(
        "", "", {.flags = {{"--micro-batch", "2"}, {"--precision", "bf16"}}, .ranks = 2});
    return estimate(model, plan,
                    {.ranks = 2, .device = at::Device(at::kCUDA, 0), .sequence_length = 128})
        .on(tiers::Tier::device)
        .peak_bytes;
  };
  EXPECT_GT(planned_with(32), 0);
  EXPECT_GE(planned_with(32), planned_with(128));
}

}  // namespace
}  // namespace fullshard::testing
