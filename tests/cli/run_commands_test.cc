// SPDX-License-Identifier: Apache-2.0
// `train`, `eval` and `compare` as a user types them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

#include "tests/cli/short_runs.h"

namespace fullshard::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// As Hugging Face's guide to FSDP prints it.
constexpr const char* kGuide = R"(compute_environment: LOCAL_MACHINE
debug: false
distributed_type: FSDP
downcast_bf16: 'no'
fsdp_config:
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_backward_prefetch_policy: BACKWARD_PRE
  fsdp_cpu_ram_efficient_loading: true
  fsdp_forward_prefetch: false
  fsdp_offload_params: true
  fsdp_sharding_strategy: 1
  fsdp_state_dict_type: SHARDED_STATE_DICT
  fsdp_sync_module_states: true
  fsdp_transformer_layer_cls_to_wrap: BertLayer
  fsdp_use_orig_params: true
machine_rank: 0
main_training_function: main
mixed_precision: bf16
num_machines: 1
num_processes: 2
rdzv_backend: static
same_network: true
tpu_env: []
tpu_use_cluster: false
tpu_use_sudo: false
use_cpu: false
)";

constexpr const char* kBert = R"({"architectures": ["BertForMaskedLM"], "model_type": "bert",
  "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64,
  "max_position_embeddings": 64, "type_vocab_size": 2, "vocab_size": 2000, "hidden_act": "gelu",
  "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "layer_norm_eps": 1e-12,
  "initializer_range": 0.02, "pad_token_id": 0})";

class Runs : public ShortRuns {};

TEST_F(Runs, OfTheGuidesFileTrainBertOnTwoRanks) {
  folder_.write("fsdp.yaml", kGuide);
  std::filesystem::create_directories(folder_ / "bert");
  folder_.write("bert/config.json", kBert);
  std::filesystem::copy(kRunFixtures + "text/bert_uncased/tokenizer.json",
                        folder_ / "bert/tokenizer.json");
  std::string text;
  for (int i = 0; i < 300; ++i) text += "the lamp of the lighthouse stays bright in the storm. ";
  folder_.write("text.txt", text);
  const launch::Ended ended = run("train --config fsdp.yaml --model bert --data text.txt");
  ASSERT_EQ(ended.status, 0) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr("fsdp_backward_prefetch_policy"));
  EXPECT_THAT(ended.output, HasSubstr("BertForMaskedLM"));
  const auto record = nlohmann::json::parse(folder_.read("fullshard-run/run.json"));
  EXPECT_EQ(record["status"], "done");
  EXPECT_EQ(record["mesh"]["world"], 2);
  EXPECT_EQ(record["mesh"]["shards"], 2);
  const auto steps = metrics("fullshard-run");
  ASSERT_FALSE(steps.empty());
  EXPECT_TRUE(std::isfinite(steps.back()["loss"].get<double>()));
  EXPECT_TRUE(std::filesystem::exists(folder_ / "fullshard-run/model/model.safetensors"));
  EXPECT_TRUE(std::filesystem::exists(folder_ / "fullshard-run/model/tokenizer.json"));
  EXPECT_TRUE(std::filesystem::exists(folder_ / "fullshard-run/logs/rank-1.log"));
  EXPECT_THAT(folder_.read("fullshard-run/report.html"), HasSubstr("</html>"));
}

TEST_F(Runs, GiveTheSameBitsForEveryStrategyOfAWorld) {
  write_tokens("t.bin", 4000);
  const std::string flags = "train --quiet --model " + kRunModels +
                            "llama --data t.bin --sequence-length 16 --micro-batch 4 --steps 6 "
                            "--lr 1e-2 --ranks 2 --no-save-model ";
  std::vector<std::vector<nlohmann::json>> curves;
  for (const std::string how : {"--strategy FULL_SHARD", "--strategy NO_SHARD", "--zero-stage 2"}) {
    const launch::Ended ended = run(flags + how + " --output run --overwrite");
    ASSERT_EQ(ended.status, 0) << how << ended.output;
    curves.push_back(metrics("run"));
    ASSERT_EQ(curves.back().size(), 6u);
  }
  EXPECT_LT(curves[0][5]["loss"], curves[0][0]["loss"]);
  for (const auto& curve : curves) {
    for (size_t step = 0; step < 6; ++step) {
      EXPECT_EQ(curve[step]["loss"].dump(), curves[0][step]["loss"].dump()) << step;
      EXPECT_EQ(curve[step]["grad_norm"].dump(), curves[0][step]["grad_norm"].dump()) << step;
    }
  }
}

// Both must use the same defaults.
TEST_F(Runs, GiveTheSameBitsForAStageAndItsStrategyWithEveryOptimizer) {
  write_tokens("t.bin", 4000);
  for (const std::string optimizer : {"AdamW", "Adagrad", "Lamb", "Lion", "SGD"}) {
    std::vector<std::string> found;
    for (const std::string how : {"--strategy FULL_SHARD", "--zero-stage 3"}) {
      const launch::Ended ended =
          run("train --quiet --overwrite --no-save-model --ranks 2 --data t.bin --sequence-length "
              "16 --micro-batch 2 --steps 3 --lr 1e-3 --optimizer " +
              optimizer + " " + how + " --model " + kRunModels + "llama");
      ASSERT_EQ(ended.status, 0) << ended.output;
      found.push_back(metrics("fullshard-run").back()["loss"].dump());
    }
    EXPECT_EQ(found[1], found[0]) << optimizer;
  }
}

TEST_F(Runs, SaveAFolderThatEvaluatesTheSameUnderAnyStrategy) {
  write_tokens("t.bin", 4000);
  const launch::Ended trained =
      run("train --json --quiet --model " + kRunModels +
          "gpt2 --data t.bin --eval-data t.bin --sequence-length 16 --micro-batch 4 --steps 5 "
          "--ranks 2 --output run --keep-best --eval-every 5");
  ASSERT_EQ(trained.status, 0) << trained.output;
  const auto summary = nlohmann::json::parse(trained.output);
  for (const std::string how : {"--ranks 1 --strategy NO_SHARD", "--ranks 3"}) {
    for (const std::string model : {"run/model", "run/best"}) {
      const launch::Ended ended =
          run("eval --json --data t.bin --sequence-length 16 --model " + model + " " + how);
      ASSERT_EQ(ended.status, 0) << ended.output;
      const auto found = nlohmann::json::parse(ended.output);
      EXPECT_NEAR(found["loss"].get<double>(), summary["eval_loss"].get<double>(), 1e-6) << how;
    }
  }
}

TEST_F(Runs, EvaluateWeightsThatAreFetchedFromADiskAlike) {
  write_tokens("t.bin", 2000);
  const auto loss_of = [&](const std::string& how) {
    const auto ended =
        run("eval --json --data t.bin --sequence-length 16 --micro-batch 4 --model " + kRunModels +
            "llama " + how);
    EXPECT_EQ(ended.status, 0) << ended.output;
    const size_t begin = ended.output.find('{');
    return nlohmann::json::parse(ended.output.substr(begin))["loss"].dump();
  };
  const std::string whole = loss_of("--ranks 1");
  EXPECT_EQ(loss_of("--ranks 1 --zero-stage 3 --offload param:. "), whole);
  EXPECT_EQ(loss_of("--ranks 2 --zero-stage 3 --offload param:. "), loss_of("--ranks 2"));
  EXPECT_EQ(loss_of("--ranks 2 --zero-stage 2"), loss_of("--ranks 2"));
}

TEST_F(Runs, ResumeToTheBit) {
  write_tokens("t.bin", 4000);
  const std::string words =
      "train --quiet --no-save-model --data t.bin --sequence-length 16 --lr 1e-2 "
      "--schedule constant --micro-batch 6 --ranks 2 --model " +
      kRunModels + "llama ";
  ASSERT_EQ(run(words + "--steps 8 --output whole").status, 0);
  ASSERT_EQ(run(words + "--steps 5 --output cut --save-every 2 --keep 2 --async-save").status, 0);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "cut/checkpoints/step-000002"));
  EXPECT_EQ(folder_.read("cut/checkpoints/latest"), "step-000005\n");
  const launch::Ended resumed = run(words + "--steps 8 --output cut --resume auto");
  ASSERT_EQ(resumed.status, 0) << resumed.output;
  const auto whole = metrics("whole"), cut = metrics("cut");
  ASSERT_EQ(cut.size(), 8u);
  for (size_t step = 0; step < 8; ++step) {
    EXPECT_EQ(cut[step]["loss"].dump(), whole[step]["loss"].dump()) << step;
  }
  EXPECT_EQ(run(words + "--steps 9 --output new --resume nowhere").status, 4);
}

TEST_F(Runs, TranslateWithT5) {
  std::filesystem::create_directories(folder_ / "t5");
  const auto config = nlohmann::json::parse(std::ifstream(kRunModels + "t5/config.json"));
  auto larger = config;
  larger["vocab_size"] = 2000;
  folder_.write("t5/config.json", larger.dump());
  std::filesystem::copy(kRunFixtures + "text/t5_model/spiece.model", folder_ / "t5/spiece.model");
  std::string lines;
  for (int i = 0; i < 24; ++i) {
    lines += R"({"translation": {"en": "good morning", "ro": "buna dimineata"}})"
             "\n";
  }
  folder_.write("pairs.jsonl", lines);
  const launch::Ended ended =
      run("train --model t5 --data pairs.jsonl --source-lang en --target-lang ro --source-prefix "
          "'translate English to Romanian: ' --sequence-length 32 --micro-batch 2 --ranks 2 "
          "--epochs 2 --lr 1e-2 --label-smoothing 0.1 --max-samples 16");
  ASSERT_EQ(ended.status, 0) << ended.output;
  const auto steps = metrics("fullshard-run");
  EXPECT_EQ(steps.size(), 8u);
  EXPECT_LT(steps.back()["loss"], steps.front()["loss"]);
}

TEST_F(Runs, EndWithAClearMessageOnBadInput) {
  write_tokens("t.bin", 4000);
  folder_.write("empty.bin", "");
  std::filesystem::create_directories(folder_ / "bare");
  std::filesystem::create_directories(folder_ / "cut");
  std::filesystem::copy(kRunModels + "llama/config.json", folder_ / "cut/config.json");
  std::ifstream whole(kRunModels + "llama/model.safetensors", std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(whole)), {});
  folder_.write("cut/model.safetensors", bytes.substr(0, bytes.size() / 2));
  struct Bad {
    std::string words;
    std::string message;
    int status = 4;
  };
  const std::string llama = " --model " + kRunModels + "llama ";
  const std::vector<Bad> cases = {
      {"--data empty.bin" + llama, "empty.bin"},
      {"--data nowhere.bin" + llama, "nowhere.bin"},
      {"--data t.bin --model bare", "bare: has no config.json"},
      {"--data t.bin --model cut --sequence-length 16", "cut/model.safetensors"},
      {"--data t.bin --sequence-length 100000" + llama,
       "--sequence-length: is 100000, but the model has ", 2},
      {"--data t.bin --tokenizer bytes --sequence-length 16" + llama,
       "bytes: has 259 tokens, but the model's vocabulary is 50"},
  };
  for (const Bad& bad : cases) {
    const launch::Ended ended = run("train --quiet --ranks 2 " + bad.words);
    EXPECT_EQ(ended.status, bad.status) << bad.words << ended.output;
    EXPECT_THAT(ended.output, HasSubstr("error: ")) << bad.words;
    EXPECT_THAT(ended.output, HasSubstr(bad.message)) << bad.words;
    EXPECT_THAT(ended.output, Not(HasSubstr("terminate"))) << bad.words;
    EXPECT_FALSE(std::filesystem::exists(folder_ / "fullshard-run/run.json")) << bad.words;
    EXPECT_FALSE(std::filesystem::exists(folder_ / "fullshard-run/model")) << bad.words;
  }
}

TEST_F(Runs, LeaveNoHalfAModelWhenThereIsNoRoom) {
  write_tokens("t.bin", 4000);
  const launch::Ended ended = launch::shell(
      "cd " + folder_.path() +
      "; export HOME=$PWD OMP_NUM_THREADS=1; ulimit -f 128; fullshard train "
      "--quiet --ranks 1 --data t.bin --sequence-length 16 --micro-batch 2 --steps 2 --model " +
      kRunModels + "llama");  // 128 blocks of 512 bytes: the report fits, the weights do not
  EXPECT_EQ(ended.status, 1) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr("model.safetensors"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "fullshard-run/model"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "fullshard-run/model.part"));
}

TEST_F(Runs, OfDataAndReportLeaveNothingWhenThereIsNoRoom) {
  folder_.write("big.txt", std::string(200'000, 'a'));
  std::filesystem::create_directories(folder_ / "run");
  folder_.write("run/run.json", "{\"status\": \"finished\"}");
  folder_.write("run/metrics.jsonl", "");
  for (const std::string words :
       {"data tokenize --tokenizer bytes big.txt --output out",
        "data make --kind sums --samples 3000 --output out", "report run --output out"}) {
    const launch::Ended ended =
        launch::shell("cd " + folder_.path() + "; ulimit -f 8; fullshard " + words);
    EXPECT_EQ(ended.status, 1) << words << ended.output;
    EXPECT_THAT(ended.output, HasSubstr("error: out: cannot be written")) << words;
    EXPECT_THAT(ended.output, HasSubstr("make room, or name another place")) << words;
    size_t files = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path())) {
      files += entry.path().filename().string().starts_with("out");
    }
    EXPECT_EQ(files, 0u) << words;
  }
}

TEST_F(Runs, RefuseWhatCannotBeBeforeAnythingStarts) {
  write_tokens("t.bin", 400);
  folder_.write("ds.json", R"({"train_batch_size": 8, "zero_optimization": {"stage": 3}})");
  const std::string llama = " --data t.bin --model " + kRunModels + "llama ";
  EXPECT_EQ(run("train --ranks 2 --config ds.json --zero-stage 2" + llama).status, 2);
  EXPECT_EQ(run("train --ranks 3 --config ds.json" + llama).status, 2);
  EXPECT_EQ(run("train --ranks 2 --device cuda" + llama).status, 2);
  EXPECT_EQ(run("train --ranks 2 --task translation" + llama).status, 2);
  EXPECT_EQ(run("train --ranks 2 --lr fast" + llama).status, 2);
  const launch::Ended typo = run("train --ranks 2 --batch-size 1" + llama);
  EXPECT_EQ(typo.status, 2);
  EXPECT_EQ(
      typo.output,
      "error: train: no option '--batch-size', did you mean '--micro-batch'?; see fullshard train "
      "--help\n");
}

TEST_F(Runs, ListEveryFlagThatContradictsTheFile) {
  folder_.write("ds.json",
                "{\"train_micro_batch_size_per_gpu\": 2,\n"
                "\"gradient_clipping\": 0.5,\n\"zero_optimization\": {\"stage\": 3}}");
  const launch::Ended ended =
      run("train --ranks 2 --deepspeed ds.json --strategy NO_SHARD --micro-batch 4 --clip 1 --data "
          "t.bin --model " +
          kRunModels + "llama");
  const std::string hint = "; leave out the flag, or change the key\n";
  EXPECT_EQ(ended.status, 2);
  EXPECT_EQ(ended.output,
            "error: ds.json:1: train_micro_batch_size_per_gpu: is 2, but --micro-batch is 4" +
                hint + "error: ds.json:2: gradient_clipping: is 0.5, but --clip is 1" + hint +
                "error: ds.json:3: zero_optimization.stage: is 3, but --strategy is NO_SHARD" +
                hint);
}

// F = 1 gives the bits of NO_SHARD and F = world those of FULL_SHARD, whatever the file says.
TEST_F(Runs, TakeAShardingFactorWithAndWithoutAFile) {
  write_tokens("t.bin", 4000);
  folder_.write("fsdp1.yaml",
                "distributed_type: FSDP\nnum_processes: 4\nfsdp_config:\n"
                "  fsdp_version: 1\n  fsdp_sharding_strategy: FULL_SHARD\n"
                "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n");
  const std::string words =
      "train --quiet --overwrite --no-save-model --data t.bin --sequence-length 16 --micro-batch 2 "
      "--steps 3 --lr 1e-2 --ranks 4 --output run --model " +
      kRunModels + "llama ";
  const auto losses = [&](const std::string& how, int shards) {
    const launch::Ended ended = run(words + how);
    EXPECT_EQ(ended.status, 0) << how << ended.output;
    EXPECT_EQ(nlohmann::json::parse(folder_.read("run/run.json"))["mesh"]["shards"], shards) << how;
    std::string text;
    for (const auto& record : metrics("run")) {
      text += record["loss"].dump() + " " + record["grad_norm"].dump() + "\n";
    }
    return text;
  };
  const std::string full = losses("--strategy FULL_SHARD", 4);
  EXPECT_EQ(losses("--strategy NO_SHARD", 1), full);
  EXPECT_EQ(losses("--sharding-factor 1", 1), full);
  EXPECT_EQ(losses("--sharding-factor 2", 2), full);
  EXPECT_EQ(losses("--sharding-factor 4", 4), full);
  EXPECT_EQ(losses("--config fsdp1.yaml --sharding-factor 2", 2), full);
  const launch::Ended odd = run(words + "--sharding-factor 3");
  EXPECT_EQ(odd.status, 2);
  EXPECT_EQ(odd.output, "error: --sharding-factor: is 3, expected a divisor of 4 ranks: 1, 2, 4\n");
}

TEST_F(Runs, BeginWithWhatTheFileSetAndWhatMatters) {
  write_tokens("t.bin", 4000);
  folder_.write("fsdp.yaml",
                "distributed_type: FSDP\nmixed_precision: bf16\nfsdp_config:\n"
                "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n");
  const std::string words =
      "train --config fsdp.yaml --overwrite --no-save-model --data t.bin --sequence-length 16 "
      "--micro-batch 2 --steps 1 --model " +
      kRunModels + "llama ";
  const std::string headline =
      "FULL_SHARD, bf16, AdamW with lr 5e-05 by WarmupDecayLR, 2 examples × 1 rank = 2 per step, "
      "gradients clipped at 1\n";
  const launch::Ended brief = run(words);
  ASSERT_EQ(brief.status, 0) << brief.output;
  EXPECT_THAT(brief.output, HasSubstr("fsdp_config.fsdp_auto_wrap_policy"));
  EXPECT_THAT(brief.output,
              HasSubstr("(every value in effect: --verbose, or fullshard-run/run.json)"));
  EXPECT_THAT(brief.output, HasSubstr(headline));
  EXPECT_THAT(brief.output, Not(HasSubstr("fsdp_forward_prefetch")));
  const launch::Ended whole = run(words + "--verbose");
  EXPECT_THAT(whole.output, HasSubstr("fsdp_config.fsdp_forward_prefetch"));
  EXPECT_THAT(whole.output, HasSubstr(headline));
  EXPECT_THAT(folder_.read("fullshard-run/run.json"),
              HasSubstr("fsdp_config.fsdp_forward_prefetch"));
}

TEST_F(Runs, WarnOfFp16OnACpuBeforeTheyStart) {
  folder_.write("fsdp.yaml", "distributed_type: FSDP\nmixed_precision: fp16\n");
  const launch::Ended ended = run(
      "train --config fsdp.yaml --device cpu --data nowhere.bin --model " + kRunModels + "llama");
  EXPECT_EQ(ended.status, 4);
  EXPECT_THAT(ended.output, ::testing::StartsWith(
                                "warning: fsdp.yaml:2: mixed_precision: fp16 is about 100 times "
                                "slower than fp32 on a CPU; use bf16, or no mixed precision\n"));
}

TEST_F(Runs, RememberTheTokenizerOfBytesInTheModelsFolder) {
  auto config = nlohmann::json::parse(std::ifstream(kRunModels + "llama/config.json"));
  config["vocab_size"] = 259;
  std::filesystem::create_directories(folder_ / "tiny");
  folder_.write("tiny/config.json", config.dump());
  std::string text;
  for (int i = 0; i < 200; ++i) text += "line " + std::to_string(i * i) + "\n";
  folder_.write("t.txt", text);
  const std::string words = "--quiet --data t.txt --sequence-length 16 --micro-batch 4 ";
  ASSERT_EQ(run("train " + words + "--model tiny --tokenizer bytes --steps 2").status, 0);
  const std::string model = "fullshard-run/model";
  const launch::Ended remembered = run("eval " + words + "--model " + model);
  EXPECT_EQ(remembered.status, 0) << remembered.output;
  EXPECT_EQ(remembered.output, run("eval " + words + "--tokenizer bytes --model " + model).output);
  // And passed on by a run that begins with that folder.
  const launch::Ended again = run("train " + words + "--steps 1 --output next --model " + model);
  ASSERT_EQ(again.status, 0) << again.output;
  EXPECT_EQ(folder_.read("next/model/tokenizer_config.json"),
            folder_.read(model + "/tokenizer_config.json"));
}

TEST_F(Runs, KeepAnEarlierRunUnlessTold) {
  write_tokens("t.bin", 4000);
  const std::string words =
      "train --quiet --data t.bin --sequence-length 16 --micro-batch 2 --steps 2 "
      "--no-save-model --model " +
      kRunModels + "llama";
  ASSERT_EQ(run(words).status, 0);
  const launch::Ended again = run(words);
  EXPECT_EQ(again.status, 2);
  EXPECT_THAT(again.output, HasSubstr("fullshard-run: holds a run already"));
  EXPECT_EQ(run(words + " --overwrite").status, 0);
}

TEST_F(Runs, EndAfterTheStepWhenInterrupted) {
  write_tokens("t.bin", 4000);
  const launch::Ended ended = launch::shell(
      "cd " + folder_.path() + "; export HOME=$PWD OMP_NUM_THREADS=1; " + launch::kHearsInterrupts +
      "fullshard train --model " + kRunModels +
      "llama --data t.bin --sequence-length 16 --micro-batch 2 --steps 1000000 --ranks 2 "
      "--no-save-model > out 2>&1 & launcher=$!; "
      "until [ -s fullshard-run/metrics.jsonl ] || ! kill -0 $launcher; do sleep 0.05; done; "
      "kill -INT $launcher; "
      "wait $launcher; echo status $?");
  EXPECT_THAT(ended.output, HasSubstr("status 130"));
  const auto record = nlohmann::json::parse(folder_.read("fullshard-run/run.json"));
  EXPECT_EQ(record["status"], "interrupted");
}

class Comparisons : public ::testing::TestWithParam<std::string> {};

TEST_P(Comparisons, EqualTransformersOnTwoRanks) {
  const std::string model = kRunModels + GetParam();
  const std::string words = "OMP_NUM_THREADS=1 fullshard compare --ranks 2 --json --model " +
                            model + " --reference " + model + "/reference.safetensors 2> /dev/null";
  const launch::Ended ended = launch::shell(words + " --tolerance 1e-5");
  EXPECT_EQ(ended.status, 0) << ended.output;
  const auto found = nlohmann::json::parse(ended.output);
  EXPECT_TRUE(found["ok"].get<bool>());
  EXPECT_GT(found["results"].size(), GetParam() == "bert_bare" ? 0u : 10u);
  EXPECT_EQ(launch::shell(words + " --tolerance 0").status, 1);
}

INSTANTIATE_TEST_SUITE_P(Models, Comparisons,
                         ::testing::Values("gpt2", "llama", "llama_tied", "mistral", "qwen2",
                                           "bert", "bert_bare", "t5", "t5_v1_1", "t5_v1_1_tied"),
                         [](const auto& which) { return which.param; });

}  // namespace
}  // namespace fullshard::cli
