// SPDX-License-Identifier: Apache-2.0
#include "fullshard/config/questionnaire.h"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <istream>
#include <ostream>

#include "fullshard/base/error.h"
#include "fullshard/base/file_kind.h"
#include "fullshard/base/hub_cache.h"
#include "fullshard/config/schema/schema.h"
#include "fullshard/config/schema/value_check.h"

namespace fullshard::config {
namespace {

class Questionnaire {
 public:
  Questionnaire(std::istream& answers, std::ostream& questions, bool has_gpus)
      : answers_(answers), questions_(questions), has_gpus_(has_gpus) {}

  std::string run() {
    text_ = "compute_environment: LOCAL_MACHINE\n";
    put("num_processes", "How many ranks in all?", "2");
    if (put("num_machines", "On how many machines?", "1") != "1") {
      put("machine_rank", "Which of them is this one (from 0)?", "0");
      put("main_process_ip", "Address of the main process?", "127.0.0.1");
      put("main_process_port", "Port of the main process?", "29500");
    }
    const bool is_cpu =
        put("use_cpu", "Compute on the CPU only?", has_gpus_ ? "false" : "true") == "true";
    const std::string engine =
        put("distributed_type", "What shards the model: FSDP, DEEPSPEED or NO?", "FSDP");
    if (engine == "FSDP") ask_fsdp();
    if (engine == "DEEPSPEED") ask_deepspeed();
    put("mixed_precision", "Mixed precision: no, fp16, bf16 or fp8?", is_cpu ? "no" : "bf16");
    return std::move(text_);
  }

 private:
  void ask_fsdp() {
    text_ += "fsdp_config:\n";
    section_ = "fsdp_config.";
    put("fsdp_version", "Version of FSDP: 1 or 2?", "2");
    if (variant_ == "2") {
      put("fsdp_reshard_after_forward", "Release parameters between forward and backward?", "true");
    } else {
      put("fsdp_sharding_strategy",
          "Strategy: FULL_SHARD, SHARD_GRAD_OP, NO_SHARD, HYBRID_SHARD or HYBRID_SHARD_ZERO2?",
          "FULL_SHARD");
      put("fsdp_backward_prefetch",
          "Prefetch in backward: BACKWARD_PRE, BACKWARD_POST or NO_PREFETCH?", "BACKWARD_PRE");
      put("fsdp_forward_prefetch", "Prefetch in forward?", "false");
      put("fsdp_use_orig_params", "Keep the original parameters visible?", "true");
      put("fsdp_sync_module_states", "Take rank 0's parameters at the start?", "true");
    }
    put("fsdp_offload_params", "Offload parameters and the step to host memory?", "false");
    const std::string policy = put(
        "fsdp_auto_wrap_policy", "Wrap policy: TRANSFORMER_BASED_WRAP, SIZE_BASED_WRAP or NO_WRAP?",
        "TRANSFORMER_BASED_WRAP");
    if (policy == "TRANSFORMER_BASED_WRAP") {
      put("fsdp_transformer_layer_cls_to_wrap",
          "Class names of units, separated by commas (empty: the model's own blocks)?", "");
    } else if (policy == "SIZE_BASED_WRAP") {
      put("fsdp_min_num_params", "Minimum number of parameters of a unit?", "100000000");
    }
    put("fsdp_state_dict_type", "Checkpoints: SHARDED_STATE_DICT or FULL_STATE_DICT?",
        "SHARDED_STATE_DICT");
    put("fsdp_cpu_ram_efficient_loading",
        "Let each rank read only its own part of a pretrained model's weights?", "true");
    put("fsdp_activation_checkpointing", "Compute activations again in backward?", "false");
    section_.clear();
  }

  void ask_deepspeed() {
    text_ += "deepspeed_config:\n";
    section_ = "deepspeed_config.";
    if (!put("deepspeed_config_file", "A DeepSpeed JSON file (empty: none)?", "").empty()) {
      put("zero3_init_flag", "Create the model sharded?", "true");
      section_.clear();
      return;
    }
    const std::string stage = put("zero_stage", "ZeRO stage: 0, 1, 2 or 3?", "2");
    if (stage != "0") ask_offload("offload_optimizer", "optimizer states");
    if (stage == "3") {
      ask_offload("offload_param", "parameters");
      put("zero3_init_flag", "Create the model sharded?", "true");
      put("zero3_save_16bit_model", "Write a whole 16-bit model at the end?", "false");
    }
    put("gradient_accumulation_steps", "Micro-batches per step?", "1");
    put("gradient_clipping", "Largest norm of gradients (0: no clipping)?", "1.0");
    section_.clear();
  }
  void ask_offload(const std::string& name, std::string_view what) {
    const std::string device =
        put(name + "_device", fmt::format("Where do {} live: none, cpu or nvme?", what), "none");
    if (device == "nvme") {
      put(name + "_nvme_path", fmt::format("Folder for {} on disk?", what), "/nvme");
    }
  }

  // Asks until the key accepts the answer; returns what was written.
  std::string put(const std::string& name, std::string_view question, std::string_view fallback) {
    const SchemaKey* key = Schema::of(Family::accelerate).find(section_ + name, variant_);
    for (;;) {
      questions_ << fmt::format("{} [{}] ", question, fallback) << std::flush;
      std::string answer;
      const bool has_answer = static_cast<bool>(std::getline(answers_, answer));
      if (!has_answer) questions_ << "\n";
      const size_t begin = answer.find_first_not_of(" \t\r");
      answer = begin == std::string::npos
                   ? std::string(fallback)
                   : answer.substr(begin, answer.find_last_not_of(" \t\r") - begin + 1);
      if (answer.empty()) return answer;
      ValueType type = key->type;
      type.is_loose = true;
      const CheckedValue checked = check_value(ConfigNode::of_plain(answer, true), type, false);
      if (checked.value) return write(name, *checked.value, answer);
      questions_ << fmt::format("{}: {}\n", name, checked.message);
      if (!has_answer || answers_.peek() == std::char_traits<char>::eof()) {
        fail_as(ErrorKind::usage, "{}: {}; answer again", name, checked.message);
      }
    }
  }
  std::string write(const std::string& name, const ConfigNode& value, const std::string& answer) {
    std::string text = value.kind == NodeKind::list ? answer : value.text;
    if (name == "fsdp_version") variant_ = text;
    // PyYAML would not read `no` and digits as strings.
    const bool needs_quotes =
        value.kind == NodeKind::text && ConfigNode::of_plain(text, true).kind != NodeKind::text;
    text_ += fmt::format("{}{}: {}\n", section_.empty() ? "" : "  ", name,
                         needs_quotes ? fmt::format("'{}'", text) : text);
    return text;
  }

  std::istream& answers_;
  std::ostream& questions_;
  const bool has_gpus_;
  std::string text_;
  std::string section_;
  std::string variant_;
};

}  // namespace

std::string ask_for_config(std::istream& answers, std::ostream& questions, bool has_gpus) {
  return Questionnaire(answers, questions, has_gpus).run();
}

std::string default_config_path() {
  std::filesystem::path folder;
  if (const char* config = std::getenv("XDG_CONFIG_HOME"); config != nullptr && *config != '\0') {
    folder = config;
  } else if (const char* home = std::getenv("HOME"); home != nullptr && *home != '\0') {
    folder = std::filesystem::path(home) / ".config";
  } else {
    return "";
  }
  return (folder / "fullshard" / "default_config.yaml").string();
}

std::string accelerate_default_config() {
  const std::string home = base::hugging_face_home();
  if (home.empty()) return "";
  for (const char* ending : {"yaml", "json"}) {
    std::string path = fmt::format("{}/accelerate/default_config.{}", home, ending);
    if (base::is_file(path)) return path;
  }
  return "";
}

}  // namespace fullshard::config
