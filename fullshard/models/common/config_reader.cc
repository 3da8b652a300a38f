// SPDX-License-Identifier: Apache-2.0
#include "fullshard/models/common/config_reader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "fullshard/base/closest.h"
#include "fullshard/base/error.h"
#include "fullshard/base/printable.h"

namespace fullshard::models {
namespace {

using nlohmann::json;

// What transformers keeps beside the architecture: identity, how to generate text, labels of other
// heads, storage.
constexpr std::array kHarmless = std::to_array<std::string_view>({
    "_attn_implementation_autoset",
    "_attn_implementation_internal",
    "_commit_hash",
    "_name_or_path",
    "architectures",
    "attn_implementation",
    "bad_words_ids",
    "begin_suppress_tokens",
    "bos_token_id",
    "chunk_size_feed_forward",
    "decoder_start_token_id",
    "diversity_penalty",
    "do_sample",
    "dtype",
    "early_stopping",
    "encoder_no_repeat_ngram_size",
    "eos_token_id",
    "exponential_decay_length_penalty",
    "finetuning_task",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "gradient_checkpointing",
    "id2label",
    "label2id",
    "length_penalty",
    "max_length",
    "min_length",
    "model_type",
    "no_repeat_ngram_size",
    "num_beam_groups",
    "num_beams",
    "num_labels",
    "num_return_sequences",
    "output_attentions",
    "output_hidden_states",
    "output_past",
    "output_scores",
    "pad_token_id",
    "prefix",
    "problem_type",
    "remove_invalid_values",
    "repetition_penalty",
    "return_dict",
    "return_dict_in_generate",
    "sep_token_id",
    "suppress_tokens",
    "task_specific_params",
    "temperature",
    "tf_legacy_loss",
    "tokenizer_class",
    "top_k",
    "top_p",
    "torch_dtype",
    "torchscript",
    "transformers_version",
    "typical_p",
    "use_bfloat16",
    "use_cache",
});

// Options of every model that change it, with the value that does not.
bool is_switched_off(std::string_view key, const json& value) {
  static constexpr std::array kSwitches = std::to_array<std::string_view>(
      {"add_cross_attention", "is_decoder", "is_encoder_decoder", "tie_encoder_decoder"});
  if (key == "pruned_heads") return value.empty();
  return value == false && std::ranges::find(kSwitches, key) != kSwitches.end();
}

bool is_harmless(std::string_view key, const json& value) {
  return value.is_null() || std::ranges::find(kHarmless, key) != kHarmless.end() ||
         is_switched_off(key, value);
}

constexpr size_t kMostShownBytes = 200;

}  // namespace

std::string shown_value(const json& value) {
  const bool is_nested = value.is_structured() && std::ranges::any_of(value, [](const json& item) {
                           return item.is_structured();
                         });
  if (!is_nested) return base::printable(value.dump(), kMostShownBytes);
  return fmt::format("{} with {} entries", value.is_array() ? "a list" : "an object", value.size());
}

ConfigReader::ConfigReader(const json& config, std::string where, std::string model)
    : config_(&config),
      where_(std::move(where)),
      model_(std::move(model)),
      problems_(std::make_shared<std::vector<std::string>>()) {
  if (!config.is_object()) {
    fail_as(ErrorKind::input, "{}: holds {}, expected a JSON object with the settings of a model",
            where_, config.type_name());
  }
}

const json* ConfigReader::find(std::string_view key) {
  read_.emplace(key);
  const auto found = config_->find(key);
  return found == config_->end() || found->is_null() ? nullptr : &*found;
}

std::string ConfigReader::path(std::string_view key) const { return prefix_ + std::string(key); }

bool ConfigReader::has(std::string_view key) const {
  const auto found = config_->find(key);
  return found != config_->end() && !found->is_null();
}

std::string_view ConfigReader::one_of(std::initializer_list<std::string_view> names) const {
  const auto found = std::ranges::find_if(names, [this](auto name) { return has(name); });
  return found == names.end() ? *std::prev(names.end()) : *found;
}

int64_t ConfigReader::integer(std::string_view key, int64_t otherwise) {
  const json* value = find(key);
  if (value == nullptr) return otherwise;
  if (value->is_number_integer()) return value->get<int64_t>();
  refuse(key, "expected an integer");
  return otherwise;
}

int64_t ConfigReader::positive(std::string_view key, int64_t otherwise) {
  const int64_t value = integer(key, otherwise);
  if (value > 0) return value;
  refuse(key, "expected an integer above 0");
  return otherwise;
}

int64_t ConfigReader::size(std::string_view key, int64_t otherwise, int64_t most,
                           std::optional<int64_t> stored) {
  const size_t num_problems = problems_->size();
  const int64_t value = positive(key, otherwise);
  if (problems_->size() > num_problems) return value;
  if (stored && value != *stored) {
    refuse(key, fmt::format("the weights beside it have {}", *stored));
  } else if (value > most) {
    refuse(key, fmt::format("expected at most {}", most));
  } else {
    return value;
  }
  return std::clamp<int64_t>(stored.value_or(otherwise), 1, most);
}

std::optional<int64_t> ConfigReader::optional_integer(std::string_view key,
                                                      std::optional<int64_t> otherwise) {
  if (find(key) == nullptr) return config_->contains(key) ? std::nullopt : otherwise;
  return integer(key, 0);
}

double ConfigReader::number(std::string_view key, double otherwise) {
  const json* value = find(key);
  if (value == nullptr) return otherwise;
  if (value->is_number()) return value->get<double>();
  refuse(key, "expected a number");
  return otherwise;
}

double ConfigReader::at_least(double least, std::string_view key, double otherwise) {
  const double value = number(key, otherwise);
  if (value >= least) return value;
  refuse(key, fmt::format("expected a number of at least {}", least));
  return otherwise;
}

double ConfigReader::probability(std::string_view key, double otherwise) {
  const double value = number(key, otherwise);
  if (value >= 0 && value < 1) return value;
  refuse(key, "expected a number from 0 to below 1");
  return otherwise;
}

bool ConfigReader::flag(std::string_view key, bool otherwise) {
  const json* value = find(key);
  if (value == nullptr) return otherwise;
  if (value->is_boolean()) return value->get<bool>();
  refuse(key, "expected true or false");
  return otherwise;
}

std::string ConfigReader::text(std::string_view key, const std::string& otherwise) {
  const json* value = find(key);
  if (value == nullptr) return otherwise;
  if (value->is_string()) return value->get<std::string>();
  refuse(key, "expected a text");
  return otherwise;
}

std::vector<std::string> ConfigReader::texts(std::string_view key) {
  const json* value = find(key);
  if (value == nullptr) return {};
  const auto is_text = [](const json& item) { return item.is_string(); };
  if (value->is_array() && std::ranges::all_of(*value, is_text)) {
    return value->get<std::vector<std::string>>();
  }
  refuse(key, "expected a list of texts");
  return {};
}

ConfigReader ConfigReader::section(std::string_view key) {
  const json* value = find(key);
  ConfigReader inner = *this;
  inner.read_.clear();
  inner.prefix_ = path(key) + ".";
  if (value != nullptr && !value->is_object()) refuse(key, "expected an object");
  if (value != nullptr && value->is_object()) {
    inner.config_ = value;
  } else {
    inner.owned_ = std::make_shared<const json>(json::object());
    inner.config_ = inner.owned_.get();
  }
  return inner;
}

void ConfigReader::supports_only(std::string_view key, const json& value) {
  const json* found = find(key);
  if (found != nullptr && *found != value) {
    refuse(key, fmt::format("only {} is supported", value.dump()));
  }
}

void ConfigReader::harmless(std::initializer_list<std::string_view> keys) {
  for (const auto key : keys) read_.emplace(key);
}

void ConfigReader::refuse(std::string_view key, const std::string& reason) {
  const auto found = config_->find(key);
  const std::string value = found == config_->end() ? "absent" : shown_value(*found);
  problems_->push_back(
      fmt::format("{} is {}: {}", base::printable(path(key), kMostShownBytes), value, reason));
}

void ConfigReader::refuse_unread() {
  const std::vector<std::string> known(read_.begin(), read_.end());
  for (const auto& [key, value] : config_->items()) {
    if (read_.contains(key) || is_harmless(key, value)) continue;
    const auto near = base::closest(key, known);
    refuse(key, near ? fmt::format("unknown; did you mean {}?", *near) : "unknown");
    read_.insert(key);
  }
}

void ConfigReader::finish() {
  refuse_unread();
  if (problems_->empty()) return;
  fail_as(ErrorKind::input, "{}: no {} can be made of it:\n  {}", where_, model_,
          fmt::join(*problems_, "\n  "));
}

std::string model_config_text(const json& config, const std::string& architecture,
                              const std::string& model_type) {
  json identified = config;
  identified["architectures"] = json::array({architecture});
  identified["model_type"] = model_type;
  return identified.dump(2, ' ', true) + "\n";
}

}  // namespace fullshard::models
