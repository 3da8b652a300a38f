// SPDX-License-Identifier: Apache-2.0
#include "fullshard/models/model_folder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>

#include "fullshard/base/error.h"
#include "fullshard/base/json_text.h"
#include "fullshard/base/printable.h"
#include "fullshard/models/bert/bert_model.h"
#include "fullshard/models/common/config_reader.h"
#include "fullshard/models/gpt2/gpt2_model.h"
#include "fullshard/models/llama/llama_model.h"
#include "fullshard/models/t5/t5_model.h"

namespace fullshard {
namespace {

using nlohmann::json;

struct Architecture {
  std::string_view name;
  std::string_view model_type;
  std::shared_ptr<LanguageModel> (*make)(const json& config, const std::string& where,
                                         const MakeOptions& options);
};

// The first of a model type is made when a file names no architecture. Bare decoders become the
// model with a head, which they are the body of.
constexpr std::array kArchitectures = std::to_array<Architecture>({
    {"GPT2LMHeadModel", "gpt2", models::make_gpt2},
    {"GPT2Model", "gpt2", models::make_gpt2},
    {"LlamaForCausalLM", "llama", models::make_llama},
    {"LlamaModel", "llama", models::make_llama},
    {"MistralForCausalLM", "mistral", models::make_mistral},
    {"MistralModel", "mistral", models::make_mistral},
    {"Qwen2ForCausalLM", "qwen2", models::make_qwen2},
    {"Qwen2Model", "qwen2", models::make_qwen2},
    {"BertForMaskedLM", "bert", models::make_bert},
    {"BertForPreTraining", "bert", models::make_bert},
    {"BertForSequenceClassification", "bert", models::make_bert},
    {"BertModel", "bert", models::make_bert},
    {"T5ForConditionalGeneration", "t5", models::make_t5},
    {"T5WithLMHeadModel", "t5", models::make_t5},
});

json parse(const std::string& text, const std::string& where) {
  try {
    json config = base::parse_json(text);
    if (config.is_object()) return config;
  } catch (const base::JsonError& error) {
    fail_as(ErrorKind::input, "{}: {}", where, error.what());
  }
  fail_as(ErrorKind::input, "{}: expected a JSON object with the settings of a model", where);
}

// Empty when the file does not tell.
std::string architecture_named(const json& config) {
  const auto found = config.find("architectures");
  if (found == config.end() || !found->is_array() || found->empty()) return {};
  return found->front().is_string() ? found->front().get<std::string>()
                                    : models::shown_value(found->front());
}

std::string model_type_named(const json& config) {
  const auto found = config.find("model_type");
  return found != config.end() && found->is_string() ? found->get<std::string>() : std::string();
}

const Architecture& architecture_of(const json& config, const std::string& where) {
  const std::string name = architecture_named(config);
  const std::string type = model_type_named(config);
  const auto fits = [&](const Architecture& known) {
    const bool named = name.empty() ? !type.empty() : known.name == name;
    return named && (type.empty() || known.model_type == type);
  };
  const auto found = std::ranges::find_if(kArchitectures, fits);
  if (found != kArchitectures.end()) return *found;
  constexpr size_t kMostShown = 100;  // bytes
  std::vector<std::string_view> names;
  for (const auto& known : kArchitectures) names.push_back(known.name);
  fail_as(ErrorKind::input,
          "{}: a model with architecture \"{}\" and model_type \"{}\" is not supported; supported "
          "are {}",
          where, base::printable(name, kMostShown), base::printable(type, kMostShown),
          fmt::join(names, ", "));
}

}  // namespace

std::shared_ptr<LanguageModel> make_model(const std::string& config_json, const std::string& where,
                                          const MakeOptions& options) {
  const json config = parse(config_json, where);
  return architecture_of(config, where).make(config, where, options);
}

}  // namespace fullshard
