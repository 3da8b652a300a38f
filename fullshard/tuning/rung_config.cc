// SPDX-License-Identifier: Apache-2.0
#include "fullshard/tuning/rung_config.h"

#include <nlohmann/json.hpp>

#include "fullshard/base/error.h"
#include "fullshard/config/convert.h"

namespace fullshard::tuning {
namespace {

using nlohmann::ordered_json;

constexpr const char* kZero = "zero_optimization";
constexpr const char* kRecomputing = "activation_checkpointing";
constexpr const char* kGlobalBatch = "train_batch_size";
constexpr const char* kMicroBatch = "train_micro_batch_size_per_gpu";
constexpr const char* kAccumulation = "gradient_accumulation_steps";

ordered_json optimizer_section(const OptimizerPlan& plan) {
  ordered_json params = {{"lr", *plan.lr}, {"weight_decay", *plan.weight_decay}};
  const std::string& type = *plan.type;
  const bool is_adams = type == "AdamW" || type == "Adam" || type == "Lamb" || type == "OneBitAdam";
  if (is_adams || type == "Lion") params["betas"] = *plan.betas;
  if (is_adams || type == "Adagrad") params["eps"] = *plan.eps;
  return {{"type", type}, {"params", params}};
}

void put_offload(ordered_json& zero, const char* section, const OffloadTarget& target) {
  if (*target.device == "none") return;
  zero[section] = {{"device", *target.device}};
  if (*target.nvme_path) zero[section]["nvme_path"] = **target.nvme_path;
}

// What FSDP's files leave to the program, and DeepSpeed's would otherwise decide differently.
void put_programs_part(ordered_json& document, const Plan& plan) {
  document["gradient_clipping"] = *plan.clipping;
  document["optimizer"] = optimizer_section(plan.optimizer);
  for (const char* key : {kGlobalBatch, kMicroBatch, kAccumulation}) document.erase(key);
  if (*plan.batch.micro) document[kMicroBatch] = **plan.batch.micro;
  if (*plan.batch.accumulation) document[kAccumulation] = **plan.batch.accumulation;
  ordered_json& zero = document[kZero];
  put_offload(zero, "offload_param", plan.offload.parameters);
  put_offload(zero, "offload_optimizer", plan.offload.optimizer);
  // It would keep `train` from writing the model, or make that 16 bits.
  zero.erase("stage3_gather_16bit_weights_on_model_save");
}

bool is_deepspeeds(const Plan& plan) {
  if (plan.deepspeed() != nullptr) return true;
  return plan.settings() != nullptr && plan.settings()->family() == config::Family::deepspeed;
}

void set_offload(ordered_json& zero, const Rung& rung, const std::string& disk) {
  for (const char* key : {"offload_param", "offload_optimizer", "cpu_offload", "cpu_offload_param",
                          "cpu_offload_use_pin_memory"}) {
    zero.erase(key);
  }
  const bool is_disk = rung.offloaded == Offloaded::to_disk;
  ordered_json place = {{"device", is_disk ? "nvme" : "cpu"}};
  if (is_disk) place["nvme_path"] = disk;
  const bool both = is_disk || rung.offloaded == Offloaded::both;
  if (both || rung.offloaded == Offloaded::parameters) zero["offload_param"] = place;
  if (both || rung.offloaded == Offloaded::optimizer) zero["offload_optimizer"] = place;
}

void set_recompute(ordered_json& document, bool recompute) {
  if (!recompute) {
    document.erase(kRecomputing);
  } else if (!document.contains(kRecomputing)) {
    // DeepSpeed has no switch for it. The number means nothing without contiguous memory.
    document[kRecomputing] = {{"number_checkpoints", 1}};
  }
}

void set_batch(ordered_json& document, int64_t micro_batch) {
  const auto is_number = [&](const char* key) {
    return document.contains(key) && document[key].is_number();
  };
  if (is_number(kGlobalBatch)) {
    document.erase(kAccumulation);  // it follows
  } else {
    document.erase(kGlobalBatch);
    if (!is_number(kAccumulation)) document.erase(kAccumulation);
  }
  document[kMicroBatch] = micro_batch;
}

}  // namespace

std::string base_config(const Plan& plan) {
  auto document = ordered_json::parse(config::convert_to_deepspeed(plan).text);
  if (!is_deepspeeds(plan)) put_programs_part(document, plan);
  return document.dump(2) + "\n";
}

std::string rung_config(const ConfigBase& base, const Rung& rung) {
  auto document = ordered_json::parse(base.text);
  ordered_json& zero = document[kZero];
  if (!base.keeps_stage) zero["stage"] = rung.stage;
  if (!base.keeps_offload) set_offload(zero, rung, base.disk);
  set_recompute(document, rung.recompute || base.keeps_recompute);
  if (rung.sixteen_bit) {
    document.erase("fp16");
    document["bf16"] = {{"enabled", true}};
  }
  set_batch(document, rung.micro_batch);
  return document.dump(2) + "\n";
}

int64_t examples_per_step(const std::string& config, int64_t ranks) {
  const auto document = ordered_json::parse(config);
  const auto found = document.find(kGlobalBatch);
  if (found == document.end() || !found->is_number_integer()) return 0;
  const auto examples = found->get<int64_t>();
  if (examples % ranks != 0) {
    fail_as(ErrorKind::usage, "{}: is {}, which {} ranks cannot share equally", kGlobalBatch,
            examples, ranks);
  }
  return examples / ranks;
}

}  // namespace fullshard::tuning
