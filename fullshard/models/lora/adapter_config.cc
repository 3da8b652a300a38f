// SPDX-License-Identifier: Apache-2.0
#include "fullshard/models/lora/adapter_config.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

#include "fullshard/base/error.h"
#include "fullshard/base/json_text.h"
#include "fullshard/models/common/config_reader.h"
#include "fullshard/models/lora/module_names.h"

namespace fullshard {
namespace {

using models::ConfigReader;
// In the order of the file: of several patterns the first that fits counts.
using OrderedJson = nlohmann::ordered_json;

constexpr int64_t kMostRank = 1 << 16;

OrderedJson parse_object(const std::string& text, const std::string& where) {
  try {
    auto parsed = base::parse_json<OrderedJson>(text);
    if (parsed.is_object()) return parsed;
  } catch (const base::JsonError& error) {
    fail_as(ErrorKind::input, "{}: {}", where, error.what());
  }
  fail_as(ErrorKind::input, "{}: expected a JSON object with the settings of an adapter", where);
}

// Options that newer versions of PEFT add are off like this.
bool is_off(const nlohmann::json& value) {
  return value.is_null() || value == false ||
         ((value.is_object() || value.is_array()) && value.empty());
}

nlohmann::json without_what_is_off(const OrderedJson& config) {
  nlohmann::json kept = nlohmann::json::parse(config.dump());
  for (auto item = kept.begin(); item != kept.end();) {
    item = is_off(item.value()) ? kept.erase(item) : std::next(item);
  }
  return kept;
}

void read_targets(ConfigReader& reader, const nlohmann::json& config, LoraOptions& lora) {
  const auto found = config.find("target_modules");
  if (found == config.end()) {
    return reader.refuse("target_modules", "expected names of modules, or a regular expression");
  }
  if (!found->is_string()) {
    lora.target_modules = reader.texts("target_modules");
    return;
  }
  const std::string text = reader.text("target_modules", "");
  if (text == models::kAllLinear) {
    lora.target_modules = {text};
  } else {
    lora.target_pattern = text;
  }
}

// Numbers by patterns; the reader has the same section in another order.
template <class Value>
std::vector<std::pair<std::string, Value>> read_pattern(ConfigReader& reader,
                                                        const OrderedJson& config,
                                                        const char* key) {
  std::vector<std::pair<std::string, Value>> patterns;
  reader.harmless({key});
  const auto found = config.find(key);
  if (found == config.end() || found->is_null()) return patterns;
  for (const auto& [pattern, value] : found->items()) {
    const bool fits = std::is_integral_v<Value> ? value.is_number_integer() : value.is_number();
    if (!found->is_object() || !fits) {
      reader.refuse(key, "expected an object with a number for each pattern");
      return {};
    }
    patterns.emplace_back(pattern, value.template get<Value>());
  }
  return patterns;
}

// Some make the adapter of the base, which they change: what was saved fits that changed base only.
void read_initialisation(ConfigReader& reader, const nlohmann::json& config) {
  reader.harmless({"init_lora_weights"});
  const auto found = config.find("init_lora_weights");
  const bool keeps_base = found == config.end() || found->is_boolean() || *found == "gaussian" ||
                          *found == "orthogonal" || *found == "eva";
  if (keeps_base) return;
  reader.refuse("init_lora_weights",
                "it changes the base; let PEFT convert the adapter to one of the original base "
                "(save_pretrained with path_initial_model_for_weight_conversion)");
}

void read_lora(ConfigReader& reader, const nlohmann::json& config, const OrderedJson& ordered,
               LoraOptions& lora) {
  lora.rank = reader.size("r", lora.rank, kMostRank);
  lora.alpha = reader.number("lora_alpha", lora.alpha);
  lora.dropout = reader.probability("lora_dropout", 0);
  lora.use_rslora = reader.flag("use_rslora", false);
  lora.modules_to_save = reader.texts("modules_to_save");
  lora.rank_pattern = read_pattern<int64_t>(reader, ordered, "rank_pattern");
  lora.alpha_pattern = read_pattern<double>(reader, ordered, "alpha_pattern");
  lora.ignores_unmatched = true;
  read_targets(reader, config, lora);
}

OrderedJson pattern_json(const auto& patterns) {
  OrderedJson object = OrderedJson::object();
  for (const auto& [pattern, value] : patterns) object[pattern] = value;
  return object;
}

// 16, not 16.0: PEFT's alpha is an integer where it can be.
OrderedJson number_json(double value) {
  constexpr double kExactIntegers = 1e15;
  if (value == std::floor(value) && std::abs(value) < kExactIntegers) {
    return static_cast<int64_t>(value);
  }
  return value;
}

OrderedJson text_or_null(const std::string& text) {
  return text.empty() ? OrderedJson(nullptr) : OrderedJson(text);
}

OrderedJson targets_json(const LoraOptions& lora) {
  if (!lora.target_pattern.empty()) return lora.target_pattern;
  const bool is_all =
      lora.target_modules.size() == 1 && lora.target_modules.front() == models::kAllLinear;
  return is_all ? OrderedJson(lora.target_modules.front()) : OrderedJson(lora.target_modules);
}

}  // namespace

AdapterConfig parse_adapter_config(const std::string& text, const std::string& where) {
  const OrderedJson ordered = parse_object(text, where);
  const nlohmann::json config = without_what_is_off(ordered);
  ConfigReader reader(config, where, "LoRA adapter");
  AdapterConfig result;
  if (!config.contains("peft_type")) reader.refuse("peft_type", "expected \"LORA\"");
  reader.supports_only("peft_type", "LORA");
  reader.supports_only("bias", "none");
  result.base_model = reader.text("base_model_name_or_path", "");
  result.task_type = reader.text("task_type", "");
  result.fan_in_fan_out = reader.flag("fan_in_fan_out", false);
  read_lora(reader, config, ordered, result.lora);
  read_initialisation(reader, config);
  // Said whether it matters or not, or of the program that trained it alone.
  reader.harmless({"auto_mapping", "inference_mode", "megatron_core", "peft_version",
                   "qalora_group_size", "revision", "eva_config", "runtime_config"});
  reader.finish();
  return result;
}

std::string adapter_config_text(const AdapterConfig& config) {
  const LoraOptions& lora = config.lora;
  OrderedJson json;
  json["alpha_pattern"] = pattern_json(lora.alpha_pattern);
  json["auto_mapping"] = nullptr;
  json["base_model_name_or_path"] = text_or_null(config.base_model);
  json["bias"] = "none";
  json["fan_in_fan_out"] = config.fan_in_fan_out;
  json["inference_mode"] = true;
  json["init_lora_weights"] = true;
  json["layers_pattern"] = nullptr;
  json["layers_to_transform"] = nullptr;
  json["lora_alpha"] = number_json(lora.alpha);
  json["lora_dropout"] = lora.dropout;
  json["modules_to_save"] =
      lora.modules_to_save.empty() ? OrderedJson(nullptr) : OrderedJson(lora.modules_to_save);
  json["peft_type"] = "LORA";
  json["r"] = lora.rank;
  json["rank_pattern"] = pattern_json(lora.rank_pattern);
  json["revision"] = nullptr;
  json["target_modules"] = targets_json(lora);
  json["task_type"] = text_or_null(config.task_type);
  json["use_dora"] = false;
  json["use_rslora"] = lora.use_rslora;
  return json.dump(2) + "\n";
}

}  // namespace fullshard
