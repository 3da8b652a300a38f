// SPDX-License-Identifier: Apache-2.0
#include "fullshard/train/model_weights.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

#include "fullshard/base/error.h"
#include "fullshard/base/json_text.h"
#include "fullshard/checkpoint/model_io.h"
#include "fullshard/checkpoint/patient_work.h"
#include "fullshard/engine/storage/agreement.h"
#include "fullshard/models/lora/add_lora.h"
#include "fullshard/ops/products/int8_rows.h"
#include "fullshard/report/records/run_file.h"
#include "fullshard/stored/side_files.h"
#include "fullshard/train/adapter.h"
#include "fullshard/train/written_folder.h"

namespace fullshard {
namespace {

// The factors of an int8 weight's rows, and that weight: files have neither, but what both are made
// of.
constexpr std::string_view kRowScales = ".weight_scale";

std::string weight_of_scales(const std::string& parameter) {
  return parameter.substr(0, parameter.size() - kRowScales.size()) + ".weight";
}

FileNames names_of(const LanguageModel& model) {
  return [&model](const std::string& parameter) {
    const bool is_scales = parameter.ends_with(kRowScales);
    const auto found = model.file_name(is_scales ? weight_of_scales(parameter) : parameter);
    return stored::NameInFile{found.name, found.transposed, found.others};
  };
}

// The parameter with a row for each token: its name in files.
std::string table_in_files(const LanguageModel& model) {
  for (const auto& item : model.named_parameters()) {
    const bool is_table = item.value().dim() == 2 && item.value().size(0) == model.vocabulary();
    if (is_table) return model.file_name(item.key()).name;
  }
  return "";
}

// What the state_dict of the original has besides: names that files leave out.
std::map<std::string, std::string> second_names_of(const LanguageModel& model) {
  const bool has_no_words = model.architecture() == "BertModel" || !model.class_names().empty();
  const std::string table = has_no_words ? "" : table_in_files(model);
  if (table.empty()) return {};
  std::map<std::string, std::string> names;
  for (const char* name : {"lm_head.weight", "cls.predictions.decoder.weight",
                           "encoder.embed_tokens.weight", "decoder.embed_tokens.weight"}) {
    if (name != table && model.is_ignored_in_files(name)) names[name] = table;
  }
  // BERT's head has its bias twice, also with a table of its own.
  const std::string bias = "cls.predictions.bias", second = "cls.predictions.decoder.bias";
  if (model.is_ignored_in_files(second)) names[second] = bias;
  if (model.is_ignored_in_files(bias)) names[bias] = second;
  return names;
}

at::Tensor quantised_rows(const std::string& parameter, const at::Tensor& rows) {
  try {
    const auto made = ops::int8_rows(rows);
    return parameter.ends_with(kRowScales) ? made.scales.view(at::kInt) : made.values;
  } catch (const Error& error) {
    fail_as(ErrorKind::input, "'{}': {}", parameter, error.what());
  }
}

// First values by the model's own rules; a weight in 8 bits, and the factors of its rows, are made
// of those that it would have in fp32.
class DrawnWeights {
 public:
  DrawnWeights(const LanguageModel& model, uint64_t seed) : model_(model), seed_(seed) {
    for (const auto& item : model.named_parameters()) {
      if (item.value().scalar_type() == at::kChar) shapes_[item.key()] = item.value().sizes().vec();
    }
  }

  void draw(const std::string& name, at::Tensor& tensor) const {
    if (name.ends_with(kRowScales)) {
      tensor.copy_(ops::int8_scales(wide(weight_of_scales(name))).view(at::kInt));
    } else if (shapes_.contains(name)) {
      tensor.copy_(ops::int8_rows(wide(name)).values);
    } else {
      fill(name, tensor);
    }
  }

 private:
  void fill(const std::string& name, at::Tensor& tensor) const {
    model_.initialise(name, tensor, at::detail::createCPUGenerator(seed_of_tensor(seed_, name)));
  }

  at::Tensor wide(const std::string& weight) const {
    auto values = at::empty(shapes_.at(weight), at::TensorOptions().dtype(at::kFloat));
    fill(weight, values);
    return values;
  }

  const LanguageModel& model_;
  uint64_t seed_;
  std::map<std::string, std::vector<int64_t>> shapes_;  // of the weights in 8 bits
};

void draw_weights(const LanguageModel& model, ShardedModel& sharded, uint64_t seed,
                  const std::function<bool(const std::string&)>& is_chosen) {
  const DrawnWeights weights(model, seed);
  initialise_weights(
      sharded, seed,
      [&](const std::string& name, at::Tensor& tensor, uint64_t) { weights.draw(name, tensor); },
      at::get_num_threads(), is_chosen);
}

}  // namespace

std::string config_with_dtype(const std::string& config_json, at::ScalarType dtype) {
  auto config = base::parse_json<nlohmann::ordered_json>(config_json);
  const std::string name = dtype == at::kBFloat16 ? "bfloat16"
                           : dtype == at::kHalf   ? "float16"
                                                  : "float32";
  const char* key = config.contains("torch_dtype") ? "torch_dtype" : "dtype";
  if (config.contains(key) && config[key] == name) return config_json;
  config[key] = name;
  return config.dump(2) + "\n";
}

LoadOptions load_options_of(const LanguageModel& model) {
  LoadOptions options{.names = names_of(model), .is_ignored = [&model](const std::string& name) {
                        return model.is_ignored_in_files(name);
                      }};
  for (const auto& item : model.named_parameters()) {
    options.order.push_back(item.key());
    if (item.key().ends_with(kRowScales)) options.from_rows = quantised_rows;
  }
  return options;
}

stored::ModelRecord record_of(const LanguageModel& model) {
  stored::ModelRecord record{
      .config = model.config_json(), .names = {}, .tied = second_names_of(model)};
  const auto add = [&](const std::string& own) {
    const auto in_file = model.file_name(own);
    const bool differs = in_file.name != own || in_file.transposed;
    if (differs) record.names[own] = {in_file.name, in_file.transposed, {}};
  };
  for (const auto& item : model.named_parameters()) add(item.key());
  for (const auto& item : model.named_buffers()) add(item.key());
  return record;
}

stored::ModelRecord record_of(const LanguageModel& model, const AdapterConfig& adapter) {
  stored::ModelRecord record{.adapter = adapter_config_text(adapter)};
  for (const auto& item : model.named_parameters()) {
    if (!item.value().requires_grad()) continue;
    const auto in_file = train::adapter_file_name(model, item.key());
    record.names[item.key()] = {in_file.name, in_file.transposed, {}};
  }
  return record;
}

void load_model_weights(const std::string& folder, const LanguageModel& model,
                        ShardedModel& sharded, const NewParameters& drawn) {
  std::unique_ptr<TensorSource> source;
  const auto problem = engine::error_of([&] { source = stored::open_model_weights(folder); });
  engine::throw_alike(checkpoint::patient_ranks(sharded.mesh()), problem, "loading");
  const std::set<std::string> names(drawn.names.begin(), drawn.names.end());
  const auto is_drawn = [&](const std::string& name) { return names.contains(name); };
  LoadOptions options = load_options_of(model);
  options.is_left_out = [&](const std::string& name) {
    return is_drawn(name) || is_lora_parameter(name);
  };
  load_weights(*source, sharded, options);
  if (!names.empty()) draw_weights(model, sharded, drawn.seed, is_drawn);
}

void make_new_weights(const LanguageModel& model, ShardedModel& sharded, uint64_t seed) {
  draw_weights(model, sharded, seed,
               [](const std::string& name) { return !is_lora_parameter(name); });
}

void save_model_folder(const std::string& folder, const LanguageModel& model, ShardedModel& sharded,
                       const SaveModelOptions& options) {
  train::write_folder(
      folder, sharded,
      [&](const std::string& made) {
        report::write_whole_file(made + "/config.json",
                                 config_with_dtype(model.config_json(), options.dtype));
        train::copy_tokenizer(options.tokenizer, made);
      },
      [&](const std::string& made) {
        save_weights(made, sharded, {.names = names_of(model), .dtype = options.dtype});
      });
}

void write_whole_weights(const std::string& folder, const LanguageModel& model,
                         ShardedModel& sharded) {
  const Communicator everyone = checkpoint::patient_ranks(sharded.mesh());
  const auto write_config = [&] {
    report::write_whole_file(folder + "/config.json",
                             config_with_dtype(model.config_json(), at::kFloat));
  };
  engine::throw_alike(
      everyone, everyone.rank() == 0 ? engine::error_of(write_config) : std::nullopt, "saving");
  save_weights(folder, sharded, {.names = names_of(model)});
}

}  // namespace fullshard
