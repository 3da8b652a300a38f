// SPDX-License-Identifier: Apache-2.0
// LoRA adapters of sharded models: PEFT's folders in and out, training beside a frozen base, and
// what of it is held, sent and saved.
#include "fullshard/train/adapter.h"

#include <ATen/ops/equal.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "fullshard/checkpoint/checkpoint.h"
#include "fullshard/comm/world/world.h"
#include "fullshard/models/lora/add_lora.h"
#include "fullshard/ops/products/int8_rows.h"
#include "fullshard/optim/adamw.h"
#include "fullshard/stored/manifest.h"
#include "fullshard/train/apply_plan.h"
#include "fullshard/train/compare.h"
#include "fullshard/train/merge_adapter.h"
#include "fullshard/train/model_source.h"
#include "fullshard/train/model_weights.h"
#include "fullshard/train/run/resume.h"
#include "fullshard/train/run/trainer.h"
#include "fullshard/train/trained_flops.h"
#include "tests/errors.h"
#include "tests/files.h"
#include "tests/launch/shell.h"
#include "tests/train/curves.h"
#include "tests/train/fixture_models.h"
#include "tests/train/folder_tensors.h"

namespace fullshard::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

using AdapterFolder = launch::TemporaryFolder;

const std::string kAdapters = FULLSHARD_SOURCE_DIR "/tests/fixtures/lora/";
constexpr uint64_t kAdapterSeed = 5;

Tensors tensors_of_file(const std::string& path) { return tensors_in(path); }

void expect_equal_tensors(const Tensors& found, const Tensors& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (const auto& [name, tensor] : expected) {
    ASSERT_TRUE(found.contains(name)) << name;
    EXPECT_TRUE(at::equal(found.at(name), tensor)) << name;
  }
}

struct AdaptedModel {
  std::shared_ptr<LanguageModel> model;
  AdapterConfig config;
  ShardedModel sharded;
};

// A fixture's base with an adapter's options, its base loaded.
AdaptedModel adapted(const World& world, const std::string& base, const LoraOptions& lora,
                     const ShardOptions& options = {}, bool in_int8 = false) {
  const ModelSource source = find_model(kModels + base);
  auto model = make_deferred_model(source);
  add_lora(*model, lora);
  if (in_int8) quantise_base(*model);
  ShardedModel sharded(model, world, options);
  load_model_weights(source.folder, *model, sharded);
  return {model, adapter_config_of(*model, lora, base), sharded};
}

// What they count and their dropout are no matter of shapes, which loading compares.
TEST(Adapters, GoOnAsTheyWereTrainedOnly) {
  const AdapterConfig own = {.lora = {.rank = 4,
                                      .alpha = 8,
                                      .dropout = 0.1,
                                      .target_modules = {"q_proj"},
                                      .rank_pattern = {{"layers.0.q_proj", 2}},
                                      .alpha_pattern = {{"layers.1.q_proj", 3}}}};
  const auto refusal = [&](const AdapterConfig& saved) -> std::string {
    const Progress progress = {
        .extra = stored::with_record("{}", {.adapter = adapter_config_text(saved)})};
    try {
      train::check_same_adapter(progress, own, "step-000003");
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage);
      return error.what();
    }
    return "no error";
  };
  EXPECT_EQ(refusal(own), "no error");
  const std::string end = "; give the same, or begin anew from its adapter with --adapter";
  AdapterConfig saved = own;
  saved.lora.dropout = 0;
  EXPECT_EQ(refusal(saved), "--lora-dropout: is 0.1, but step-000003 was trained with 0" + end);
  saved = own;
  saved.lora.alpha_pattern = {};
  EXPECT_EQ(refusal(saved),
            "alpha_pattern: is layers.1.q_proj: 3, but step-000003 was trained with none" + end);
  saved = own;
  saved.lora.rank_pattern.emplace_back("k_proj", 1);
  EXPECT_EQ(refusal(saved),
            "rank_pattern: is layers.0.q_proj: 2, but step-000003 was trained with "
            "layers.0.q_proj: 2, k_proj: 1" +
                end);
}

struct PeftFolder {
  std::string name, base;
};

const std::vector<PeftFolder> kPeftFolders = {
    {"llama", "llama"}, {"llama_patterns", "llama"},      {"gpt2", "gpt2"},
    {"qwen2", "qwen2"}, {"bert_classes", "bert_classes"}, {"t5", "t5"}};

std::string name_of_folder(const ::testing::TestParamInfo<PeftFolder>& which) {
  return which.param.name;
}

class PeftFolders : public ::testing::TestWithParam<PeftFolder> {};

TEST_P(PeftFolders, ComputeAsPeftAndComeBackFromAnyNumberOfRanks) {
  const auto& [name, base] = GetParam();
  const std::string folder = kAdapters + name;
  const AdapterFolder place;
  const auto reference = open_weights(folder + "/reference.safetensors");
  for (const int ranks : {1, 2, 3}) {
    run_ranks({.ranks = ranks}, [&](const World& world) {
      const auto config = load_adapter_config(folder);
      auto run = adapted(world, base, config.lora);
      load_adapter(folder, run.sharded);
      for (const auto& found : compare_model(*run.model, run.sharded, *reference)) {
        EXPECT_LE(found.relative, 1e-5) << found.name << ", " << ranks << " ranks";
      }
      save_adapter(place / "saved", run.sharded, run.config);
    });
    expect_equal_tensors(tensors_of_file(place / "saved/adapter_model.safetensors"),
                         tensors_of_file(folder + "/adapter_model.safetensors"));
  }
  // What PEFT's configuration says, ours says too; the keys that it has beside them are off.
  const auto ours = nlohmann::json::parse(read_file(place / "saved/adapter_config.json"));
  const auto theirs = nlohmann::json::parse(read_file(folder + "/adapter_config.json"));
  for (const auto& [key, value] : ours.items()) {
    if (key == "base_model_name_or_path") continue;
    EXPECT_EQ(value, theirs.at(key)) << key;
  }
  EXPECT_EQ(load_adapter_config(place / "saved").lora, load_adapter_config(folder).lora);
}

INSTANTIATE_TEST_SUITE_P(Models, PeftFolders, ::testing::ValuesIn(kPeftFolders), name_of_folder);

TEST(Adapters, AreDrawnAlikeOnAnyNumberOfRanks) {
  const AdapterFolder place;
  Tensors first;
  for (const int ranks : {1, 2, 3}) {
    run_ranks({.ranks = ranks}, [&](const World& world) {
      auto run = adapted(world, "llama", {.rank = 3});
      draw_adapters(run.sharded, kAdapterSeed);
      save_adapter(place / "drawn", run.sharded, run.config);
    });
    const auto found = tensors_of_file(place / "drawn/adapter_model.safetensors");
    if (first.empty()) first = found;
    expect_equal_tensors(found, first);
  }
  for (const auto& [name, tensor] : first) {
    EXPECT_EQ(tensor.any().item<bool>(), name.ends_with("lora_A.weight")) << name;
  }
}

// A base without a file begins as it would in fp32, rounded: not as zeros.
TEST(Adapters, OverNewWeightsIn8BitsStandBesideTheRowsOfThoseDrawnInFp32) {
  const auto drawn = [](bool in_int8) {
    const auto model = make_deferred_model(find_model(kModels + "llama"));
    add_lora(*model, {.rank = 2});
    if (in_int8) quantise_base(*model);
    ShardedModel sharded(model, World::single(), ShardOptions());
    make_new_weights(*model, sharded, kAdapterSeed);
    Tensors values;
    for (const auto& item : model->named_parameters()) {
      if (!is_lora_parameter(item.key())) values[item.key()] = item.value().detach().clone();
    }
    return values;
  };
  const auto wide = drawn(false);
  int num_layers = 0;
  for (const auto& [name, values] : drawn(true)) {
    if (name.ends_with(".weight_scale")) continue;
    if (values.scalar_type() != at::kChar) {
      EXPECT_TRUE(at::equal(values, wide.at(name))) << name;
      continue;
    }
    ++num_layers;
    EXPECT_TRUE(at::equal(values, ops::int8_rows(wide.at(name)).values)) << name;
  }
  EXPECT_GT(num_layers, 0);
  for (const auto& [name, scales] : drawn(true)) {
    if (!name.ends_with(".weight_scale")) continue;
    const auto weight = name.substr(0, name.size() - std::string("_scale").size());
    EXPECT_TRUE(at::equal(scales.view(at::kFloat), ops::int8_scales(wide.at(weight)))) << name;
  }
}

// --- Training.

constexpr int64_t kAdapterSteps = 4;

Tensors trained(int ranks, const std::string& configuration, bool in_int8 = false) {
  const AdapterFolder place;
  run_ranks({.ranks = ranks}, [&](const World& world) {
    const Plan plan = Plan::parse(configuration, "test", {.ranks = world.size()});
    auto run = adapted(world, "llama", {.rank = 2, .alpha = 4, .modules_to_save = {"norm"}},
                       shard_options_of(plan), in_int8);
    draw_adapters(run.sharded, kAdapterSeed);
    const UnevenData data(run.model->vocabulary(), false);
    Trainer trainer(*run.model, run.sharded, plan, data, nullptr,
                    {.steps = kAdapterSteps,
                     .global_batch = kGlobalBatch,
                     .micro_batch = kGlobalBatch / world.size(),
                     .adapter = run.config});
    trainer.run({}, {}, {});
    save_adapter(place / "trained", run.sharded, run.config);
  });
  return tensors_of_file(place / "trained/adapter_model.safetensors");
}

std::string zero_stage(int stage, const std::string& more = "") {
  return fmt::format(
      R"({{"train_batch_size": {}, "zero_optimization": {{"stage": {}{}}}, "gradient_clipping": 1.0}})",
      kGlobalBatch, stage, more);
}

// On one world every strategy comes to the same bits, with a base in fp32 and one in int8.
TEST(Adapters, AreTrainedToTheSameBitsByEveryStrategy) {
  for (const bool in_int8 : {false, true}) {
    const Tensors expected = trained(2, zero_stage(0), in_int8);
    for (const auto& [name, tensor] : expected) {
      EXPECT_TRUE(tensor.any().item<bool>()) << name << " was not trained";
    }
    for (const auto& configuration : {zero_stage(1), zero_stage(2), zero_stage(3),
                                      zero_stage(3, R"(, "offload_param": {"device": "cpu"}, )"
                                                    R"("offload_optimizer": {"device": "cpu"})")}) {
      SCOPED_TRACE(configuration + (in_int8 ? ", int8" : ""));
      expect_equal_tensors(trained(2, configuration, in_int8), expected);
    }
  }
  const Tensors expected = trained(2, fsdp_configuration("NO_SHARD"));
  for (const char* strategy : {"FULL_SHARD", "SHARD_GRAD_OP", "HYBRID_SHARD"}) {
    SCOPED_TRACE(strategy);
    expect_equal_tensors(trained(2, fsdp_configuration(strategy)), expected);
  }
}

int64_t numel_of(const LanguageModel& model, bool is_trained) {
  int64_t numel = 0;
  for (const auto& parameter : model.parameters()) {
    if (parameter.requires_grad() == is_trained) numel += parameter.numel();
  }
  return numel;
}

ShardOptions sharded_by(int stage, bool in_bf16) {
  ShardOptions options;
  options.sharding.zero_stage = stage;
  options.share_host_copy = false;
  options.master_in_halves = false;
  if (!in_bf16) return options;
  options.param_dtype = at::kBFloat16;
  options.master_dtype = at::kFloat;
  return options;
}

// Padding of shards is at most this for each group of a unit.
constexpr int64_t kPaddingBytes = 4096;

TEST(Adapters, CostMemoryForWhatIsTrainedOnly) {
  for (const int stage : {0, 1, 2, 3}) {
    run_ranks({.ranks = 2}, [&](const World& world) {
      SCOPED_TRACE(stage);
      auto run = adapted(world, "llama", {.rank = 2}, sharded_by(stage, /*in_bf16=*/true));
      draw_adapters(run.sharded, kAdapterSeed);
      AdamW optimizer(run.sharded, {.lr = 1e-3});
      ModelInputs inputs;
      inputs.input_ids = at::ones({2, 8}, at::kLong);
      inputs.labels = inputs.input_ids;
      run.model->forward(inputs).loss.backward();
      optimizer.step();
      const int64_t own = numel_of(*run.model, true) / (stage == 0 ? 1 : 2);
      const auto& ledger = run.sharded.ledger();
      EXPECT_NEAR(ledger.held(tiers::Purpose::master), 4 * own, kPaddingBytes);
      EXPECT_NEAR(ledger.held(tiers::Purpose::optimizer), 2 * 4 * own, 2 * kPaddingBytes);
      EXPECT_LE(ledger.peak(tiers::Purpose::gradients),
                8 * numel_of(*run.model, true) + kPaddingBytes);
      EXPECT_LT(8 * numel_of(*run.model, true) + kPaddingBytes, numel_of(*run.model, false));
    });
  }
}

// The base is gathered in what it rests in, and updates send nothing of it.
TEST(Adapters, BaseInInt8IsHalfOfBf16OnTheWireAndAtRest) {
  const auto gathered = [](bool in_int8, int stage, bool in_step) {
    int64_t bytes = 0;
    run_ranks({.ranks = 2}, [&](const World& world) {
      const LoraOptions lora{.rank = 1, .target_modules = {"q_proj"}};
      auto run = adapted(world, "llama", lora, sharded_by(stage, /*in_bf16=*/true), in_int8);
      draw_adapters(run.sharded, kAdapterSeed);
      AdamW optimizer(run.sharded, {.lr = 1e-3});
      ModelInputs inputs;
      inputs.input_ids = at::ones({2, 8}, at::kLong);
      inputs.labels = inputs.input_ids;
      world.recorder().reset_totals();
      const auto loss = run.model->forward(inputs).loss;
      const int64_t forward = world.recorder().totals(Operation::all_gather).bytes;
      loss.backward();
      world.recorder().reset_totals();
      optimizer.step();
      const int64_t step = world.recorder().totals(Operation::all_gather).bytes;
      if (world.rank() == 0) bytes = in_step ? step : forward;
    });
    return bytes;
  };
  // Two layers: 4 square projections of which two are half as wide, three of the feed-forward.
  const int64_t linear_numel = 2 * (2 * 32 * 32 + 2 * 16 * 32 + 3 * 32 * 40);
  const int64_t num_rows = 2 * (2 * 32 + 2 * 16 + 2 * 40 + 32);
  const int64_t saved = gathered(false, 3, false) - gathered(true, 3, false);
  EXPECT_NEAR(saved, linear_numel - 4 * num_rows, 512);
  // Stage 2 sends updated parameters: 2 layers of a q_proj with rank 1, in bf16.
  EXPECT_LE(gathered(false, 2, true), 2 * 2 * (32 + 32) + 512);
}

TEST(Adapters, OfAnInt8BaseSeeTheSameWeightsOnAnyNumberOfRanks) {
  std::vector<double> losses;
  for (const auto& [base, adapter] : {std::pair{"llama", "llama"}, std::pair{"gpt2", "gpt2"}}) {
    losses.clear();
    for (const int ranks : {1, 2, 3}) {
      run_ranks({.ranks = ranks}, [&](const World& world) {
        const std::string folder = kAdapters + adapter;
        auto run = adapted(world, base, load_adapter_config(folder).lora, {}, /*in_int8=*/true);
        load_adapter(folder, run.sharded);
        const auto reference = open_weights(folder + "/reference.safetensors");
        const auto found = compare_model(*run.model, run.sharded, *reference);
        if (world.rank() != 0) return;
        for (const auto& one : found) {
          if (one.name == "logits") losses.push_back(one.relative);
        }
      });
    }
    ASSERT_EQ(losses.size(), 3);
    EXPECT_EQ(losses[0], losses[1]);
    EXPECT_EQ(losses[0], losses[2]);
    EXPECT_GT(losses[0], 1e-5);  // it is rounded, and not by much
    EXPECT_LT(losses[0], 0.03);
  }
}

// --- Checkpoints.

TEST(Adapters, AreCheckpointedWithoutTheirBaseAndGoOnElsewhere) {
  const AdapterFolder place;
  const std::string half = place / stored::checkpoint_name(2);
  const auto train_from = [&](int ranks, const std::string& checkpoint) {
    run_ranks({.ranks = ranks}, [&](const World& world) {
      const Plan plan = Plan::parse(zero_stage(3), "test", {.ranks = world.size()});
      auto run = adapted(world, "llama", {.rank = 2}, shard_options_of(plan));
      draw_adapters(run.sharded, checkpoint.empty() ? kAdapterSeed : 99);
      const UnevenData data(run.model->vocabulary(), false);
      const TrainerOptions options{.steps = kAdapterSteps,
                                   .global_batch = kGlobalBatch,
                                   .micro_batch = kGlobalBatch / world.size(),
                                   .checkpoint_folder = place.path(),
                                   .save_every = checkpoint.empty() ? 2 : 0,
                                   .checkpoints = {.leaves_out_frozen = true},
                                   .adapter = run.config};
      Trainer trainer(*run.model, run.sharded, plan, data, nullptr, options);
      if (!checkpoint.empty()) {
        EXPECT_EQ(trainer.resume(checkpoint), 2);
      }
      trainer.run({}, {}, {});
      save_adapter(place / "adapter", run.sharded, run.config);
    });
    return tensors_of_file(place / "adapter/adapter_model.safetensors");
  };
  const Tensors whole = train_from(2, "");
  const auto manifest = stored::read_manifest(half);
  EXPECT_TRUE(manifest.leaves_out_frozen);
  EXPECT_EQ(manifest.tensors.size(), 8);
  for (const auto& tensor : manifest.tensors) {
    EXPECT_TRUE(is_lora_parameter(tensor.names.front())) << tensor.names.front();
    EXPECT_EQ(tensor.states.size(), 2) << tensor.names.front();
  }
  expect_equal_tensors(train_from(2, half), whole);
  for (const int ranks : {1, 3}) {  // the same but for the order of sums
    const Tensors other = train_from(ranks, half);
    for (const auto& [name, tensor] : whole) {
      EXPECT_LT((other.at(name) - tensor).abs().max().item<double>(), 1e-5) << name;
    }
  }
}

TEST(Adapters, CheckpointsNeedTheBaseFirst) {
  const AdapterFolder place;
  run_ranks({.ranks = 1}, [&](const World& world) {
    auto run = adapted(world, "llama", {.rank = 2});
    draw_adapters(run.sharded, kAdapterSeed);
    save_checkpoint(place / "saved", run.sharded, {}, {.leaves_out_frozen = true});
    auto model = make_deferred_model(find_model(kModels + "llama"));
    add_lora(*model, {.rank = 2});
    ShardedModel bare(model, world, ShardOptions{});
    EXPECT_THAT(message_of([&] { load_checkpoint(place / "saved", bare); }),
                HasSubstr("the frozen parameters of this model have no values yet"));
    // A model that trains what was frozen then lacks it.
    auto whole = make_deferred_model(find_model(kModels + "llama"));
    ShardedModel trained(whole, world, ShardOptions{});
    load_model_weights(kModels + "llama", *whole, trained);
    EXPECT_THAT(message_of([&] { load_checkpoint(place / "saved", trained); }),
                HasSubstr("not in the checkpoint: model.embed_tokens.weight"));
  });
}

// --- What cannot be.

TEST(Adapters, OfAnotherBaseAreRefusedByTheirTensors) {
  run_ranks({.ranks = 2}, [&](const World& world) {
    auto run = adapted(world, "llama_biases", {.rank = 4, .target_modules = {"q_proj", "v_proj"}});
    EXPECT_THAT(
        message_of([&] { load_adapter(kAdapters + "llama", run.sharded); }),
        AllOf(
            HasSubstr("not expected: base_model.model.model.layers.0.mlp.down_proj.lora_A.weight"),
            HasSubstr("another shape")));
  });
  EXPECT_THAT(message_of([] { load_adapter_config(kModels + "llama"); }),
              HasSubstr("has no adapter_config.json; an adapter is a folder that PEFT"));
}

// --- One model of both.

class Merged : public ::testing::TestWithParam<PeftFolder> {};

TEST_P(Merged, ComputesWhatTheAdapterDoes) {
  const auto& [name, base] = GetParam();
  const AdapterFolder place;
  const std::string folder = place / "merged";
  merge_adapter(kModels + base, kAdapters + name, folder);
  EXPECT_EQ(read_file(folder + "/config.json"), read_file(kModels + base + "/config.json"));
  const auto reference = open_weights(kAdapters + name + "/reference.safetensors");
  run_ranks({.ranks = 1}, [&](const World& world) {
    const ModelSource source = find_model(folder);
    auto model = make_deferred_model(source);
    for (auto& parameter : model->parameters()) parameter.set_requires_grad(false);
    ShardedModel sharded(model, world, ShardOptions{});
    load_model_weights(folder, *model, sharded);
    model->eval();
    ModelInputs inputs;
    const auto ids = [&](const char* key) {
      return reference->find(key) == nullptr ? at::Tensor()
                                             : tensor_io::read_tensor(*reference, key);
    };
    inputs.input_ids = ids("input_ids");
    inputs.attention_mask = ids("attention_mask");
    inputs.token_type_ids = ids("token_type_ids");
    inputs.labels = ids("labels");
    inputs.wants_logits = true;
    const auto found = model->forward(inputs).logits;
    const auto expected = ids("logits");
    EXPECT_LE((found - expected).abs().max().item<double>(),
              1e-5 * expected.abs().max().item<double>());
  });
}

INSTANTIATE_TEST_SUITE_P(Models, Merged, ::testing::ValuesIn(kPeftFolders), name_of_folder);

TEST(MergeAdapter, RefusesWhatDoesNotFitAndWritesNothing) {
  const AdapterFolder place;
  const auto refusal = [&](const std::string& base, const std::string& adapter,
                           const std::string& output) {
    return message_of([&] { merge_adapter(base, adapter, output); });
  };
  EXPECT_THAT(refusal(kModels + "llama_biases", kAdapters + "llama", place / "x"),
              HasSubstr("it is an adapter of another base"));
  EXPECT_THAT(refusal(kModels + "bert", kAdapters + "llama", place / "x"),
              HasSubstr("no linear layer matches the target modules"));
  EXPECT_TRUE(entries_of(place.path()).empty());
  std::filesystem::create_directory(place / "there");
  place.write("there/file", "kept");
  EXPECT_THAT(refusal(kModels + "llama", kAdapters + "llama", place / "there"),
              HasSubstr("exists and is not empty"));
  EXPECT_EQ(place.read("there/file"), "kept");
}

// Forward and the gradient of rows, for all weights; the gradient of weights for what is trained.
TEST(TrainedFlops, LeaveOutGradientsOfTheBase) {
  const auto model = make_deferred_model(find_model(kModels + "llama"));
  const double whole = train::trained_flops_per_token(*model, 16);
  EXPECT_EQ(whole, model->flops_per_token(16));
  add_lora(*model, {.rank = 1, .target_modules = {"q_proj"}});
  const double linear_numel = 2 * (2 * 32 * 32 + 2 * 16 * 32 + 3 * 32 * 40) + 50 * 32;
  EXPECT_EQ(train::trained_flops_per_token(*model, 16),
            whole - 2 * linear_numel + 6 * 2 * (32 + 32));
}

}  // namespace
}  // namespace fullshard::testing
