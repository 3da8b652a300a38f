// SPDX-License-Identifier: Apache-2.0
#include "fullshard/train/adapter.h"

#include <ATen/CPUGeneratorImpl.h>
#include <torch/nn/module.h>

#include <cmath>
#include <set>

#include "fullshard/base/error.h"
#include "fullshard/base/file_kind.h"
#include "fullshard/base/hub_cache.h"
#include "fullshard/base/text_file.h"
#include "fullshard/checkpoint/model_io.h"
#include "fullshard/checkpoint/patient_work.h"
#include "fullshard/engine/storage/agreement.h"
#include "fullshard/formats/weights/open_weights.h"
#include "fullshard/models/lora/add_lora.h"
#include "fullshard/report/records/run_file.h"
#include "fullshard/stored/side_files.h"
#include "fullshard/train/written_folder.h"

namespace fullshard {
namespace {

constexpr const char* kAdapterConfig = "adapter_config.json";
constexpr const char* kAdapterWeights = "adapter_model.safetensors";
constexpr const char* kOlderAdapterWeights = "adapter_model.bin";
constexpr std::string_view kPeftPrefix = "base_model.model.";

std::string task_type_of(const LanguageModel& model) {
  if (!model.class_names().empty()) return "SEQ_CLS";
  if (model.is_encoder_decoder()) return "SEQ_2_SEQ_LM";
  return model.is_masked() ? "" : "CAUSAL_LM";
}

[[noreturn]] void refuse_adapter(const std::string& folder, const char* file) {
  fail_as(
      ErrorKind::input,
      "{}: has no {}; an adapter is a folder that PEFT or fullshard wrote, or the name of one in "
      "the Hugging Face cache",
      folder, file);
}

// Whether files have a linear layer's weight the other way round: then all of them.
bool has_turned_weights(const LanguageModel& model) {
  for (const auto& item : model.named_parameters()) {
    if (model.file_name(item.key()).transposed) return true;
  }
  return false;
}

stored::NameInFile name_in_adapter(const torch::nn::Module& model, const std::string& parameter) {
  const auto found = train::adapter_file_name(model, parameter);
  return {found.name, found.transposed, {}};
}

std::set<std::string> trained_names(const torch::nn::Module& model) {
  std::set<std::string> names;
  for (const auto& item : model.named_parameters()) {
    if (item.value().requires_grad()) names.insert(item.key());
  }
  return names;
}

// What is not trained is not in the file.
SaveOptions adapter_saving(const torch::nn::Module& model, at::ScalarType dtype) {
  SaveOptions options{.dtype = dtype, .file_name = kAdapterWeights};
  options.names = [&model, trained = trained_names(model)](const std::string& name) {
    return trained.contains(name) ? name_in_adapter(model, name) : stored::NameInFile{};
  };
  return options;
}

}  // namespace

namespace train {

LanguageModel::FileName adapter_file_name(const torch::nn::Module& model,
                                          const std::string& parameter) {
  LanguageModel::FileName file{.name = parameter};
  if (const auto* known = dynamic_cast<const LanguageModel*>(&model)) {
    file = known->file_name(parameter);
  }
  if (!file.name.empty()) file.name.insert(0, kPeftPrefix);
  return file;
}

std::string adapter_weights_in(const std::string& folder) {
  for (const char* name : {kAdapterWeights, kOlderAdapterWeights}) {
    const std::string found = base::path_or_cached_model(folder);
    const std::string path = found + "/" + name;
    if (!base::is_file(path)) continue;
    stored::check_model_file(found, name);
    return path;
  }
  refuse_adapter(folder, kAdapterWeights);
}

}  // namespace train

void draw_adapters(ShardedModel& model, uint64_t seed) {
  const auto draw = [](const std::string& name, at::Tensor& tensor, uint64_t own_seed) {
    if (name.ends_with(".lora_B.weight")) {
      tensor.zero_();
      return;
    }
    // kaiming_uniform with a = sqrt(5).
    const double bound = 1 / std::sqrt(static_cast<double>(tensor.size(1)));
    tensor.uniform_(-bound, bound, at::detail::createCPUGenerator(own_seed));
  };
  initialise_weights(model, seed, draw, /*num_threads=*/1, is_lora_parameter);
}

AdapterConfig adapter_config_of(const LanguageModel& model, const LoraOptions& options,
                                const std::string& base_model) {
  return {.lora = with_target_modules(options, model),
          .base_model = base_model,
          .task_type = task_type_of(model),
          .fan_in_fan_out = has_turned_weights(model)};
}

void write_adapter_files(const std::string& folder, ShardedModel& model,
                         const AdapterConfig& config, const SaveAdapterOptions& options) {
  const Communicator everyone = checkpoint::patient_ranks(model.mesh());
  const auto write_config = [&] {
    report::write_whole_file(folder + "/" + kAdapterConfig, adapter_config_text(config));
  };
  engine::throw_alike(
      everyone, everyone.rank() == 0 ? engine::error_of(write_config) : std::nullopt, "saving");
  save_weights(folder, model, adapter_saving(model.module(), options.dtype));
}

void save_adapter(const std::string& folder, ShardedModel& model, const AdapterConfig& config,
                  const SaveAdapterOptions& options) {
  train::write_folder(
      folder, model,
      [&](const std::string& made) {
        train::copy_tokenizer(options.tokenizer, made);
        if (options.config_json.empty()) return;
        report::write_whole_file(made + "/config.json", options.config_json);
      },
      [&](const std::string& made) { write_adapter_files(made, model, config, options); });
}

AdapterConfig load_adapter_config(const std::string& folder) {
  const std::string found = base::path_or_cached_model(folder);
  const std::string path = found + "/" + kAdapterConfig;
  stored::check_model_file(found, kAdapterConfig);
  const auto text = base::find_text_file(path);
  if (!text) refuse_adapter(folder, kAdapterConfig);
  return parse_adapter_config(*text, path);
}

void load_adapter(const std::string& folder, ShardedModel& model,
                  const std::vector<std::string>& required) {
  std::unique_ptr<TensorSource> source;
  const auto problem =
      engine::error_of([&] { source = open_weights(train::adapter_weights_in(folder)); });
  engine::throw_alike(checkpoint::patient_ranks(model.mesh()), problem, "loading");
  const auto& module = model.module();
  LoadOptions options;
  options.question = "is it an adapter of this model?";
  options.names = [&](const std::string& name) { return name_in_adapter(module, name); };
  // The base stays, but for what the file has of it: modules that were trained whole.
  const std::set<std::string> needed(required.begin(), required.end());
  options.is_left_out = [&](const std::string& name) {
    return !is_lora_parameter(name) && !needed.contains(name) &&
           source->find(train::adapter_file_name(module, name).name) == nullptr;
  };
  load_weights(*source, model, options);
}

}  // namespace fullshard
