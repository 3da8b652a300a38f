// SPDX-License-Identifier: Apache-2.0
// The command lines of Hugging Face's guides to FSDP and DeepSpeed, in their order, with small
// models and data instead of theirs: each runs, or names what this machine lacks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/cli/short_runs.h"

namespace fullshard::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kGuideT5 = R"({"architectures": ["T5ForConditionalGeneration"],
  "model_type": "t5", "d_model": 16, "d_ff": 32, "d_kv": 8, "num_heads": 2, "num_layers": 1,
  "num_decoder_layers": 1, "vocab_size": 2000, "dropout_rate": 0.0, "eos_token_id": 1,
  "pad_token_id": 0, "decoder_start_token_id": 0, "feed_forward_proj": "relu",
  "relative_attention_num_buckets": 8, "is_encoder_decoder": true, "tie_word_embeddings": true})";

constexpr const char* kGuideBert = R"({"architectures": ["BertForMaskedLM"],
  "model_type": "bert", "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
  "intermediate_size": 32, "max_position_embeddings": 64, "type_vocab_size": 2,
  "vocab_size": 2000, "hidden_act": "gelu", "hidden_dropout_prob": 0.0,
  "attention_probs_dropout_prob": 0.0, "layer_norm_eps": 1e-12, "initializer_range": 0.02,
  "pad_token_id": 0})";

struct GuideLine {
  const char* where;  // the guide, and the line's purpose
  const char* line;   // as a shell reads it
  int status;
  std::vector<const char*> says;
};

const std::vector<GuideLine>& lines_of_launchers() {
  static const std::vector<GuideLine> lines = {
      {"FSDP: accelerate config",
       "fullshard config --output my.yaml < /dev/null",
       0,
       {"my.yaml: written"}},
      {"FSDP: accelerate launch",
       "fullshard launch --config_file fsdp.yaml sh my-script.sh",
       0,
       {"rank 0 of 2", "[1] rank 1 of 2"}},
      {"FSDP: accelerate launch with the Trainer's words",
       "fullshard launch --num_processes 2 --fsdp=\"full shard\" "
       "--fsdp_config=\"path/to/fsdp_config/\" sh my-script.sh",
       0,
       {"rank 0 of 2 with full shard and path/to/fsdp_config"}},
      {"FSDP: the same where the folder is not there",
       "fullshard launch --num_processes 2 --fsdp=\"full shard\" "
       "--fsdp_config=\"path/to/nowhere/\" sh my-script.sh",
       2,
       {"path/to/nowhere/: cannot be read (No such file or directory); name the Trainer's "
        "fsdp_config"}},
      {"DeepSpeed: memory of T0_3B",
       "fullshard estimate --deepspeed-table --total-params 2783000000 --largest-layer-params "
       "65000000 --gpus-per-node 1 --nodes 1",
       0,
       {"69.98", "62.20", "46.90"}},
      {"DeepSpeed: torchrun",
       "fullshard launch --nproc_per_node=8 --nnode=2 --node_rank=0 --master_addr=hostname1 "
       "--master_port=9901 sh my-script.sh --learning_rate 1 --deepspeed ds_config.json",
       0,
       {"rank 7 of 16 at hostname1:9901 for --learning_rate 1 --deepspeed ds_config.json"}},
      {"DeepSpeed: hostfile, with hosts that are not there",
       "fullshard launch --ssh false --num_gpus 8 --num_nodes 2 --hostfile hostfile --master_addr "
       "hostname1 --master_port=9901 sh my-script.sh --deepspeed ds_config.json",
       2,
       {"hostname1", "hostname2"}},
      {"DeepSpeed: slurm",
       "GPUS_PER_NODE=8 SLURM_NNODES=2 SLURM_PROCID=1 MASTER_ADDR=hostname1 MASTER_PORT=9901 "
       "sh -c 'fullshard launch --nproc_per_node $GPUS_PER_NODE --nnodes $SLURM_NNODES --node_rank "
       "$SLURM_PROCID --master_addr $MASTER_ADDR --master_port $MASTER_PORT sh my-script.sh "
       "--deepspeed ds_config.json'",
       0,
       {"rank 15 of 16 at hostname1:9901"}},
      {"DeepSpeed: a model by its name that is not in the cache",
       "fullshard estimate --model bigscience/T0_3B --ranks 1",
       2,
       {"bigscience/T0_3B"}},
      {"DeepSpeed: versions", "fullshard --version --verbose", 0, {"libtorch"}},
  };
  return lines;
}

const std::vector<GuideLine>& lines_of_runs() {
  static const std::vector<GuideLine> lines = {
      {"FSDP: a program under the file",
       "fullshard launch --config_file fsdp.yaml fullshard train --model bert --data text.txt "
       "--sequence-length 16 --steps 1 --no-save-model --output fsdp",
       0,
       {}},
      {"DeepSpeed: run_translation on two GPUs",
       "fullshard train --num_gpus=2 --deepspeed tests/deepspeed/ds_config_zero3.json "
       "--model_name_or_path google-t5/t5-small --per_device_train_batch_size 1 "
       "--output_dir output_dir --overwrite_output_dir --fp16 --do_train --max_train_samples 500 "
       "--num_train_epochs 1 --dataset_name wmt16 --dataset_config \"ro-en\" --source_lang en "
       "--target_lang ro",
       0,
       {"steps     4\n"}},
      {"DeepSpeed: run_translation on one",
       "fullshard train --num_gpus=1 --deepspeed tests/deepspeed/ds_config_zero2.json "
       "--model_name_or_path google-t5/t5-small --per_device_train_batch_size 1 "
       "--output_dir output_dir --overwrite_output_dir --fp16 --do_train --max_train_samples 500 "
       "--num_train_epochs 1 --dataset_name wmt16 --dataset_config \"ro-en\" --source_lang en "
       "--target_lang ro",
       0,
       {"steps     8\n"}},
      {"DeepSpeed: run_translation with its script",
       "fullshard train --num_gpus=1 examples/pytorch/translation/run_translation.py --deepspeed "
       "tests/deepspeed/ds_config_zero2.json --model_name_or_path google-t5/t5-small",
       2,
       {"leave the script out"}},
      {"DeepSpeed: a notebook",
       "RANK=0 LOCAL_RANK=0 WORLD_SIZE=1 MASTER_ADDR=localhost MASTER_PORT=$((20000 + $$ % 20000)) "
       "fullshard train --deepspeed ds_config_zero3.json --model $MODELS/llama --data t.bin "
       "--sequence-length 16 --steps 1 --no-save-model --output notebook",
       0,
       {}},
      {"DeepSpeed: ZeRO inference",
       "fullshard train --num_gpus=2 --model_name_or_path $MODELS/llama --validation_file t.bin "
       "--block_size 16 --per_device_eval_batch_size 2 --output_dir eval_dir --do_eval --deepspeed "
       "inference.json",
       0,
       {"perplexity", "note: --do_eval without --do_train"}},
      {"DeepSpeed: t0.py on two GPUs",
       "fullshard generate --num_gpus 2 --deepspeed inference.json --model_name_or_path google-t5/"
       "t5-small --prompts prompts.txt --max-new-tokens 4",
       0,
       {}},
      {"DeepSpeed: a disk that is not there",
       "fullshard train --deepspeed nvme.json --model $MODELS/llama --data t.bin --sequence-length "
       "16 --steps 1 --output disk",
       4,
       {"/local_nvme"}},
  };
  return lines;
}

class GuideLines : public ShortRuns {
 protected:
  void SetUp() override {
    for (const std::string name : {"fsdp.yaml", "inference.json"}) copy_guide(name, name);
    copy_guide("notebook.json", "ds_config_zero3.json");
    std::filesystem::create_directories(folder_ / "tests/deepspeed");
    copy_guide("notebook.json", "tests/deepspeed/ds_config_zero3.json");
    copy_guide("zero2.json", "tests/deepspeed/ds_config_zero2.json");
    copy_guide("nvme.json", "nvme.json");
    std::string disk = folder_.read("nvme.json");
    for (size_t at = disk.find("\u060C"); at != std::string::npos; at = disk.find("\u060C")) {
      disk.replace(at, 2, ",");
    }
    folder_.write("nvme.json", disk);
    std::filesystem::create_directories(folder_ / "path/to/fsdp_config");
    folder_.write("path/to/fsdp_config/fsdp.json", R"({"min_num_params": 2000})");
    folder_.write("hostfile", "hostname1 slots=8\nhostname2 slots=8\n");
    folder_.write("my-script.sh",
                  "echo \"rank $RANK of $WORLD_SIZE with $FULLSHARD_FSDP and "
                  "$FULLSHARD_FSDP_CONFIG\" | sed \"s|$PWD/||\"\n"
                  "echo \"rank $RANK of $WORLD_SIZE at $MASTER_ADDR:$MASTER_PORT for $*\"\n");
    std::string text;
    for (int i = 0; i < 40; ++i) text += "good morning\ngood night\n";
    folder_.write("text.txt", text);
    folder_.write("prompts.txt", "good morning\ngood night\n");
    std::filesystem::create_directories(folder_ / "bert");
    folder_.write("bert/config.json", kGuideBert);
    std::filesystem::copy(kRunFixtures + "text/bert_uncased/tokenizer.json",
                          folder_ / "bert/tokenizer.json");
    write_tokens("t.bin", 400);
    make_cache();
  }

  void copy_guide(const std::string& from, const std::string& to) {
    std::filesystem::copy_file(kRunFixtures + "guides/" + from, folder_ / to,
                               std::filesystem::copy_options::overwrite_existing);
  }

  // google-t5/t5-small and wmt16, as `hf download` leaves them.
  void make_cache() {
    const std::string hash(40, 'c');
    const auto snapshot = [&](const std::string& kind) {
      const std::string place = ".cache/huggingface/hub/" + kind;
      std::filesystem::create_directories(folder_ / (place + "/refs"));
      std::filesystem::create_directories(folder_ / (place + "/snapshots/" + hash));
      folder_.write(place + "/refs/main", hash);
      return place + "/snapshots/" + hash + "/";
    };
    const std::string model = snapshot("models--google-t5--t5-small");
    folder_.write(model + "config.json", kGuideT5);
    std::filesystem::copy(kRunFixtures + "text/t5_model/spiece.model",
                          folder_ / (model + "spiece.model"));
    const std::string data = snapshot("datasets--wmt16") + "ro-en/";
    std::filesystem::create_directories(folder_ / data);
    std::string pairs;
    for (int i = 0; i < 8; ++i) {
      pairs += R"({"translation": {"en": "good morning", "ro": "buna dimineata"}})"
               "\n";
    }
    folder_.write(data + "train.json", pairs);
    folder_.write(data + "validation.json", pairs);
  }

  void check(const std::vector<GuideLine>& lines) {
    for (const GuideLine& guide : lines) {
      SCOPED_TRACE(guide.where);
      const launch::Ended ended = launch::shell(
          "cd " + folder_.path() +
          "; unset XDG_CONFIG_HOME XDG_CACHE_HOME HF_HOME FULLSHARD_CONFIG; export MODELS=" +
          kRunModels + " HOME=" + folder_.path() + " OMP_NUM_THREADS=1 CUDA_VISIBLE_DEVICES=; " +
          guide.line);
      EXPECT_EQ(ended.status, guide.status) << ended.output;
      for (const char* text : guide.says) EXPECT_THAT(ended.output, HasSubstr(text));
      EXPECT_THAT(ended.output, Not(HasSubstr("has no effect")));
    }
  }
};

TEST_F(GuideLines, OfLaunchersStartWhatTheyName) { check(lines_of_launchers()); }

TEST_F(GuideLines, OfProgramsRun) {
  check(lines_of_runs());
  EXPECT_FALSE(std::filesystem::exists(folder_ / "eval_dir"));
}

// The loss is that of `eval` with its own flags.
TEST_F(GuideLines, ThatOnlyEvaluateEqualEval) {
  const std::string model = kRunModels + "llama";
  const launch::Ended trainers =
      run("train --model_name_or_path " + model +
          " --do_eval --validation_file t.bin --block_size 16 --per_device_eval_batch_size 2 "
          "--quiet 2> /dev/null");
  const launch::Ended own =
      run("eval --model " + model +
          " --data t.bin --sequence-length 16 --micro-batch 2 --quiet 2> /dev/null");
  EXPECT_EQ(trainers.status, 0) << trainers.output;
  EXPECT_EQ(trainers.output, own.output);
  EXPECT_THAT(own.output, HasSubstr("loss "));
}

}  // namespace
}  // namespace fullshard::cli
