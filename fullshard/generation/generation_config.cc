// SPDX-License-Identifier: Apache-2.0
#include "fullshard/generation/generation_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>

#include "fullshard/base/closest.h"
#include "fullshard/base/error.h"
#include "fullshard/base/json_text.h"
#include "fullshard/base/printable.h"
#include "fullshard/base/text_file.h"

namespace fullshard {
namespace {

using nlohmann::json;

// Keys that change nothing here: tokens of which others tell, caches, what Python functions return.
constexpr auto kHarmlessKeys = std::to_array<std::string_view>(
    {"_from_model_config", "bos_token_id", "pad_token_id", "transformers_version", "use_cache",
     "cache_implementation", "cache_config", "return_legacy_cache", "output_attentions",
     "output_hidden_states", "output_scores", "output_logits", "return_dict_in_generate",
     "prefill_chunk_size", "disable_compile", "compile_config", "is_assistant"});

// Keys that are not honoured, with the value that asks for nothing.
struct UnhonouredKey {
  std::string_view name;
  std::string_view neutral;  // as JSON; empty: null alone
};
constexpr auto kUnhonouredKeys =
    std::to_array<UnhonouredKey>({{"max_length", "20"},
                                  {"min_length", "0"},
                                  {"max_time", ""},
                                  {"typical_p", "1.0"},
                                  {"epsilon_cutoff", "0.0"},
                                  {"eta_cutoff", "0.0"},
                                  {"top_h", ""},
                                  {"penalty_alpha", ""},
                                  {"num_beam_groups", "1"},
                                  {"diversity_penalty", "0.0"},
                                  {"encoder_repetition_penalty", "1.0"},
                                  {"encoder_no_repeat_ngram_size", "0"},
                                  {"bad_words_ids", ""},
                                  {"force_words_ids", ""},
                                  {"constraints", ""},
                                  {"forced_bos_token_id", ""},
                                  {"forced_eos_token_id", ""},
                                  {"suppress_tokens", ""},
                                  {"begin_suppress_tokens", ""},
                                  {"sequence_bias", ""},
                                  {"guidance_scale", ""},
                                  {"exponential_decay_length_penalty", ""},
                                  {"remove_invalid_values", "false"},
                                  {"renormalize_logits", "false"},
                                  {"low_memory", "false"},
                                  {"token_healing", "false"},
                                  {"watermarking_config", ""},
                                  {"assistant_confidence_threshold", ""},
                                  {"num_assistant_tokens", ""},
                                  {"num_assistant_tokens_schedule", ""},
                                  {"prompt_lookup_num_tokens", ""},
                                  {"max_matching_ngram_size", ""}});

class GenerationConfigReader {
 public:
  GenerationConfigReader(const json& config, std::string where)
      : config_(config), where_(std::move(where)) {}

  GenerationConfig read() {
    GenerateOptions& options = result_.options;
    take("max_new_tokens", options.max_new_tokens);
    take("min_new_tokens", options.min_new_tokens);
    take("do_sample", options.do_sample);
    take("temperature", options.temperature);
    take("top_k", options.top_k);
    take("top_p", options.top_p);
    take("min_p", options.min_p);
    take("repetition_penalty", options.repetition_penalty);
    take("no_repeat_ngram_size", options.no_repeat_ngram_size);
    take("num_beams", options.num_beams);
    take("length_penalty", options.length_penalty);
    take("num_return_sequences", options.num_return_sequences);
    take_early_stopping();
    take_list("eos_token_id", options.eos_tokens, "a token or a list of them");
    take_list("stop_strings", options.stop, "a text or a list of them");
    int64_t start = -1;
    take("decoder_start_token_id", start);
    if (start >= 0) result_.start_token = start;
    look_at_others();
    if (!problems_.empty()) {
      fail_as(ErrorKind::input, "{}: {}", where_, fmt::join(problems_, "; "));
    }
    try {
      check_generate_values(options);
    } catch (const Error& error) {
      fail_as(ErrorKind::input, "{}: {}", where_, error.what());
    }
    return std::move(result_);
  }

 private:
  const json* find(std::string_view key) {
    known_.emplace_back(key);
    const auto found = config_.find(key);
    return found == config_.end() || found->is_null() ? nullptr : &*found;
  }

  void refuse(std::string_view key, const json& value, std::string_view expected) {
    constexpr size_t kMostShown = 100;  // bytes
    problems_.push_back(fmt::format("{} is {}, expected {}", key,
                                    base::printable(value.dump(), kMostShown), expected));
  }

  void take(std::string_view key, int64_t& target) {
    const json* value = find(key);
    if (value == nullptr) return;
    if (!value->is_number_integer()) return refuse(key, *value, "a whole number");
    target = value->get<int64_t>();
  }
  void take(std::string_view key, double& target) {
    const json* value = find(key);
    if (value == nullptr) return;
    if (!value->is_number()) return refuse(key, *value, "a number");
    target = value->get<double>();
  }
  void take(std::string_view key, bool& target) {
    const json* value = find(key);
    if (value == nullptr) return;
    if (!value->is_boolean()) return refuse(key, *value, "true or false");
    target = value->get<bool>();
  }

  void take_early_stopping() {
    const json* value = find("early_stopping");
    if (value == nullptr) return;
    EarlyStopping& target = result_.options.early_stopping;
    if (value->is_boolean()) {
      target = value->get<bool>() ? EarlyStopping::at_once : EarlyStopping::heuristic;
    } else if (*value == "never") {
      target = EarlyStopping::never;
    } else {
      refuse("early_stopping", *value, "true, false or \"never\"");
    }
  }

  static bool is_item(const json& value, const int64_t*) { return value.is_number_integer(); }
  static bool is_item(const json& value, const std::string*) { return value.is_string(); }

  template <class Item>
  void take_list(std::string_view key, std::vector<Item>& target, const char* expected) {
    const json* value = find(key);
    if (value == nullptr) return;
    const json list = value->is_array() ? *value : json::array({*value});
    for (const json& item : list) {
      if (!is_item(item, static_cast<const Item*>(nullptr))) return refuse(key, *value, expected);
    }
    target = list.get<std::vector<Item>>();
  }

  void warn(const std::string& key, const std::string& what) {
    constexpr size_t kMostShown = 100;  // bytes
    result_.warnings.push_back(
        fmt::format("{}: {} {}", where_, base::printable(key, kMostShown), what));
  }

  void look_at_others() {
    for (const auto& [key, value] : config_.items()) {
      if (std::ranges::find(known_, key) != known_.end()) continue;
      if (std::ranges::find(kHarmlessKeys, key) != kHarmlessKeys.end()) continue;
      const auto found = std::ranges::find(kUnhonouredKeys, key, &UnhonouredKey::name);
      if (found == kUnhonouredKeys.end()) {
        const auto near = base::closest(key, known_);
        warn(key, near ? fmt::format("is unknown and has no effect; did you mean {}?", *near)
                       : "is unknown and has no effect");
      } else if (!value.is_null() &&
                 (found->neutral.empty() || value != json::parse(found->neutral))) {
        warn(key, key == "max_length" ? "is not honoured; max_new_tokens counts new tokens instead"
                                      : "is not honoured");
      }
    }
  }

  const json& config_;
  std::string where_;
  GenerationConfig result_;
  std::vector<std::string> known_;
  std::vector<std::string> problems_;
};

std::vector<int64_t> eos_of_model(const std::string& model_config) {
  const json config = json::parse(model_config, nullptr, /*allow_exceptions=*/false);
  if (!config.is_object() || !config.contains("eos_token_id")) return {};
  const json& value = config["eos_token_id"];
  if (value.is_number_integer()) return {value.get<int64_t>()};
  std::vector<int64_t> tokens;
  if (!value.is_array()) return tokens;
  for (const json& token : value) {
    if (token.is_number_integer()) tokens.push_back(token.get<int64_t>());
  }
  return tokens;
}

}  // namespace

GenerationConfig read_generation_config(const std::string& text, const std::string& where) {
  json config;
  try {
    config = base::parse_json(text);
  } catch (const base::JsonError& error) {
    fail_as(ErrorKind::input, "{}: {}", where, error.what());
  }
  if (!config.is_object()) fail_as(ErrorKind::input, "{}: expected a JSON object", where);
  return GenerationConfigReader(config, where).read();
}

GenerationConfig load_generation_config(const std::string& folder,
                                        const std::string& model_config) {
  GenerationConfig result;
  const std::string path = folder + "/generation_config.json";
  if (const auto text = folder.empty() ? std::nullopt : base::find_text_file(path)) {
    result = read_generation_config(*text, path);
    result.path = path;
  }
  if (result.options.eos_tokens.empty()) result.options.eos_tokens = eos_of_model(model_config);
  return result;
}

}  // namespace fullshard
