// SPDX-License-Identifier: Apache-2.0
#include "fullshard/cli/flags/trainer_words.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "fullshard/base/error.h"
#include "fullshard/cli/flags/trainer_flags.h"
#include "fullshard/cli/flags/trainer_values.h"

namespace fullshard::cli {
namespace {

constexpr int64_t kTrainerInterval = 500;  // of its evaluations and checkpoints, by default

// A flag of the Trainer with the values behind it.
struct GivenFlag {
  const TrainerFlag* flag;
  std::string typed;  // with dashes, without a value
  std::vector<std::string> values;
};

struct SplitWord {
  std::string name{};  // "--lr"
  std::optional<std::string> value{};
};

SplitWord split(const std::string& word) {
  const size_t equals = word.find('=');
  if (equals == std::string::npos) return {word, std::nullopt};
  return {word.substr(0, equals), word.substr(equals + 1)};
}

bool is_flag(const std::string& word) { return word.size() > 2 && word.starts_with("--"); }

std::string own_name(const std::string& word) {
  std::string name = word == "-o" ? "--output" : split(word).name;
  std::ranges::replace(name, '_', '-');
  if (name == "--gradient-checkpointing") return "--recompute";
  return name;
}

class TrainerTranslation {
 public:
  explicit TrainerTranslation(const std::vector<std::string>& words) { read(words); }

  TrainerWords translate() && {
    for (const GivenFlag& given : given_) translate(given);
    translate_data();
    translate_intervals();
    translate_warmup();
    translate_adapter();
    check_evaluation();
    result_.words.insert(result_.words.end(), added_.begin(), added_.end());
    return std::move(result_);
  }

 private:
  using Kind = TrainerFlagKind;

  // --- The words as they are given.

  void read(const std::vector<std::string>& words) {
    for (size_t i = 0; i < words.size(); ++i) {
      if (!is_flag(words[i])) {
        keep(words[i]);
        continue;
      }
      const SplitWord word = split(words[i]);
      const TrainerFlag* flag = find_trainer_flag(std::string_view(word.name).substr(2));
      const bool is_ours = word.name == "--report-to";  // of the same meaning, with our messages
      if (flag == nullptr || flag->kind == Kind::same || is_ours) {
        keep(words[i]);
        continue;
      }
      GivenFlag given{flag, word.name, {}};
      if (word.value) given.values.push_back(*word.value);
      while (!word.value && i + 1 < words.size() && !is_flag(words[i + 1]) && takes(given)) {
        given.values.push_back(words[++i]);
      }
      given_.push_back(std::move(given));
    }
  }

  // A list goes up to the next flag, as of our own flags.
  static bool takes(const GivenFlag& given) {
    const std::string_view name = given.flag->name;
    const bool is_list = given.flag->kind == Kind::no_effect || name == "report_to" ||
                         name == "train_file" || name == "validation_file" ||
                         name == "lora_target_modules";
    return is_list || given.values.empty();
  }

  void keep(const std::string& word) {
    if (is_flag(word) || word == "-o") {
      own_.emplace_back(own_name(word), split(word).value.value_or(""));
    } else if (!own_.empty()) {
      std::string& value = own_.back().second;
      value += (value.empty() ? "" : " ") + word;
    }
    result_.words.push_back(word);
  }

  const GivenFlag* find(std::string_view name) const {
    const auto found = std::ranges::find_if(
        given_, [&](const GivenFlag& given) { return given.flag->name == name; });
    return found == given_.end() ? nullptr : &*found;
  }

  static const std::string& value_of(const GivenFlag& given) {
    if (given.values.empty()) fail_as(ErrorKind::usage, "{}: has no value", given.typed);
    return given.values.front();
  }

  static bool is_true(const GivenFlag& given) {
    if (given.values.empty()) return true;
    const auto truth = truth_of(given.values.front());
    if (!truth) {
      fail_as(ErrorKind::usage, "{}: is '{}', expected true or false", given.typed,
              given.values.front());
    }
    return *truth;
  }

  // --- Our own words.

  // `value` empty: a flag without one. Two that say the same thing are said once.
  void put(const GivenFlag& given, const std::string& own, const std::string& value) {
    const auto shown = [](const std::string& flag, const std::string& text) {
      return text.empty() ? flag : fmt::format("{} {}", flag, text);
    };
    for (const auto& [name, text] : own_) {
      if (name != own) continue;
      if (is_same_text(text, value)) return;
      fail_as(ErrorKind::usage, "{}: stands for {}, but {} is given too; keep one of them",
              given.typed, shown(own, value), shown(own, text));
    }
    const auto [place, is_new] = put_.try_emplace(own, Put{given.typed, value});
    if (!is_new) {
      if (is_same_text(place->second.value, value)) return;
      fail_as(ErrorKind::usage, "{}: stands for {}, but {} stands for {}; keep one of them",
              given.typed, shown(own, value), place->second.typed, shown(own, place->second.value));
    }
    result_.aliases.push_back({given.typed, own});
    added_.push_back(own);
    if (!value.empty()) added_.push_back(value);
  }

  void put_list(const GivenFlag& given, const std::string& own) {
    put(given, own, value_of(given));
    for (size_t i = 1; i < given.values.size(); ++i) added_.push_back(given.values[i]);
  }

  bool is_said(const std::string& own) const {
    return put_.contains(own) ||
           std::ranges::any_of(own_, [&](const auto& word) { return word.first == own; });
  }

  void warn(const GivenFlag& given, std::string_view why) {
    result_.warnings.push_back(fmt::format("{}: without effect: {}", given.typed, why));
  }

  // --- One flag at a time.

  void translate(const GivenFlag& given) {
    switch (given.flag->kind) {
      case Kind::value:
        return put_list(given, std::string(given.flag->own));
      case Kind::truth:
        if (is_true(given)) put(given, std::string(given.flag->own), "");
        return;
      case Kind::no_effect:
        return warn(given, given.flag->note);
      case Kind::refused: {
        const bool is_off = !given.values.empty() && !truth_of(given.values.front()).value_or(true);
        if (is_off) return;
        fail_as(ErrorKind::usage, "{}: is not supported; {}", given.typed, given.flag->note);
      }
      case Kind::special:
        return translate_special(given);
      case Kind::same:
        return;
    }
  }

  // Those that are not in the list count together with others, below.
  void translate_special(const GivenFlag& given) {
    for (const auto& [name, act] : kSpecials) {
      if (name == given.flag->name) return (this->*act)(given);
    }
  }

  // "--precision fp16" of the table.
  void whole_words(const GivenFlag& given) {
    if (!is_true(given)) return;
    const std::string words(given.flag->own);
    const size_t space = words.find(' ');
    put(given, words.substr(0, space), words.substr(space + 1));
  }

  void tf32(const GivenFlag& given) { put(given, "--tf32", is_true(given) ? "on" : "off"); }

  void max_steps(const GivenFlag& given) {
    if (number_of(value_of(given)).value_or(1) > 0) put(given, "--steps", value_of(given));
  }

  void max_train_samples(const GivenFlag& given) {
    put(given, "--max-samples", value_of(given));
    if (!is_said("--max-eval-samples")) put(given, "--max-eval-samples", "0");
  }

  void optim(const GivenFlag& given) {
    const auto name = optimizer_named(value_of(given));
    if (!name) {
      fail_as(ErrorKind::usage,
              "{}: '{}' is not supported; use adamw_torch, sgd, adagrad or lion_32bit, or "
              "--optimizer",
              given.typed, value_of(given));
    }
    put(given, "--optimizer", std::string(*name));
  }

  void do_train(const GivenFlag& given) {
    if (!is_true(given)) {
      fail_as(ErrorKind::usage, "{}: is false, but train trains; use fullshard eval", given.typed);
    }
  }

  void save_total_limit(const GivenFlag& given) {
    if (number_of(value_of(given)).value_or(1) > 0) put(given, "--keep", value_of(given));
  }

  void resume_from_checkpoint(const GivenFlag& given) {
    const auto truth = given.values.empty() ? std::optional(true) : truth_of(given.values.front());
    put(given, "--resume", !truth ? given.values.front() : *truth ? "auto" : "none");
  }

  void metric_for_best_model(const GivenFlag& given) {
    if (value_of(given) == "loss" || value_of(given) == "eval_loss") return;
    fail_as(ErrorKind::usage, "{}: is '{}', expected loss or eval_loss", given.typed,
            value_of(given));
  }

  void report_to(const GivenFlag& given) {
    value_of(given);
    const std::string target = report_target(given.typed, given.values);
    if (target != "none") put(given, "--report-to", target);
  }

  void logging_steps(const GivenFlag& given) {
    if (number_of(value_of(given)).value_or(1) >= 1) {
      return put(given, "--log-every", value_of(given));
    }
    warn(given, "a share of the run is not counted; every step is logged");
  }

  // --- Flags that belong together.

  void translate_data() {
    if (const GivenFlag* model = find("model_name_or_path")) {
      put(*model, "--model", value_of(*model));
      if (!is_said("--from-scratch")) put(*model, "--pretrained", "");
    }
    if (const GivenFlag* config = find("config_name")) {
      if (find("model_name_or_path") != nullptr) {
        warn(*config, "the model's own configuration is used");
      } else {
        put(*config, "--model", value_of(*config));
        put(*config, "--from-scratch", "");
      }
    }
    if (const GivenFlag* dataset = find("dataset_name")) {
      const GivenFlag* config = find("dataset_config_name");
      if (config == nullptr) config = find("dataset_config");
      const std::string name =
          value_of(*dataset) + (config == nullptr ? "" : ":" + value_of(*config));
      put(*dataset, "--data", name);
      if (wants_evaluation() != nullptr && !is_said("--eval-data")) {
        put(*dataset, "--eval-data", name);
      }
    }
  }

  const GivenFlag* eval_strategy() const {
    const GivenFlag* strategy = find("eval_strategy");
    return strategy != nullptr ? strategy : find("evaluation_strategy");
  }

  // The flag that asks for an evaluation, or null.
  const GivenFlag* wants_evaluation() const {
    if (const GivenFlag* flag = find("do_eval"); flag != nullptr && is_true(*flag)) return flag;
    const GivenFlag* strategy = eval_strategy();
    if (strategy != nullptr && value_of(*strategy) != "no") return strategy;
    return strategy == nullptr ? find("eval_steps") : nullptr;
  }

  void translate_intervals() {
    translate_interval(eval_strategy(), find("eval_steps"), "--eval-every");
    const GivenFlag* saving = find("save_strategy");
    if (saving != nullptr && value_of(*saving) == "best") {
      put(*saving, "--keep-best", "");
      if (const GivenFlag* steps = find("save_steps")) warn(*steps, "the strategy is best");
      return;
    }
    translate_interval(saving, find("save_steps"), "--save-every");
  }

  void translate_interval(const GivenFlag* strategy, const GivenFlag* steps,
                          const std::string& own) {
    const std::string name = strategy == nullptr ? "steps" : value_of(*strategy);
    if (name == "steps") {
      if (steps != nullptr) return put(*steps, own, value_of(*steps));
      if (strategy != nullptr) put(*strategy, own, fmt::format("{}", kTrainerInterval));
      return;
    }
    if (name != "no" && name != "epoch") {
      fail_as(ErrorKind::usage, "{}: is '{}', expected no, steps or epoch", strategy->typed, name);
    }
    if (steps != nullptr) warn(*steps, fmt::format("{} is {}", strategy->typed, name));
    if (name == "epoch") put(*strategy, own, "epoch");
  }

  // Where nobody names a schedule the Trainer's warm-up is that of its linear one. A DeepSpeed file
  // may have a schedule of its own.
  void translate_warmup() {
    const GivenFlag* steps = find("warmup_steps");
    const GivenFlag* ratio = find("warmup_ratio");
    const auto is_set = [](const GivenFlag* given) {
      return given != nullptr && number_of(value_of(*given)).value_or(1) != 0;
    };
    if (is_set(steps) && is_set(ratio)) {
      warn(*ratio, fmt::format("{} is given", steps->typed));
      ratio = nullptr;
    }
    const GivenFlag* warmup = is_set(ratio) ? ratio : steps != nullptr ? steps : ratio;
    if (warmup == nullptr) return;
    put(*warmup, "--warmup", value_of(*warmup));
    if (is_set(warmup) && !is_said("--schedule") && !has_deepspeed_file()) {
      put(*warmup, "--schedule", "linear");
    }
  }

  // What TRL's ModelConfig begins with.
  void translate_adapter() {
    const GivenFlag* given = find("use_peft");
    if (given == nullptr || !is_true(*given) || is_said("--adapter")) return;
    for (const auto& [own, value] :
         {std::pair("--lora-rank", "16"), std::pair("--lora-alpha", "32"),
          std::pair("--lora-dropout", "0.05")}) {
      if (!is_said(own)) put(*given, own, value);
    }
  }

  bool has_deepspeed_file() const {
    return std::ranges::any_of(own_, [](const auto& word) {
      const bool is_config = word.first == "--config" || word.first == "--config-file";
      return word.first == "--deepspeed" || (is_config && word.second.ends_with(".json"));
    });
  }

  void check_evaluation() const {
    const GivenFlag* asked = wants_evaluation();
    if (asked == nullptr || is_said("--eval-data")) return;
    fail_as(ErrorKind::usage,
            "{}: there is nothing to evaluate on; name it with --validation_file (--eval-data)",
            asked->typed);
  }

  struct Put {
    std::string typed, value;
  };
  struct Special {
    std::string_view name;
    void (TrainerTranslation::*act)(const GivenFlag&);
  };
  static const std::array<Special, 17> kSpecials;

  std::vector<GivenFlag> given_;
  std::vector<std::pair<std::string, std::string>> own_;  // our flags as they were given
  std::map<std::string, Put> put_;                        // our flags that others stand for
  std::vector<std::string> added_;
  TrainerWords result_;
};

const std::array<TrainerTranslation::Special, 17> TrainerTranslation::kSpecials = {{
    {"fp16", &TrainerTranslation::whole_words},
    {"bf16", &TrainerTranslation::whole_words},
    {"fp16_full_eval", &TrainerTranslation::whole_words},
    {"bf16_full_eval", &TrainerTranslation::whole_words},
    {"use_cpu", &TrainerTranslation::whole_words},
    {"load_in_8bit", &TrainerTranslation::whole_words},
    {"no_cuda", &TrainerTranslation::whole_words},
    {"tf32", &TrainerTranslation::tf32},
    {"max_steps", &TrainerTranslation::max_steps},
    {"max_train_samples", &TrainerTranslation::max_train_samples},
    {"optim", &TrainerTranslation::optim},
    {"do_train", &TrainerTranslation::do_train},
    {"save_total_limit", &TrainerTranslation::save_total_limit},
    {"resume_from_checkpoint", &TrainerTranslation::resume_from_checkpoint},
    {"metric_for_best_model", &TrainerTranslation::metric_for_best_model},
    {"report_to", &TrainerTranslation::report_to},
    {"logging_steps", &TrainerTranslation::logging_steps},
}};

bool is_name_character(char letter) {
  return letter == '-' || letter == '_' || (letter >= 'a' && letter <= 'z') ||
         (letter >= '0' && letter <= '9');
}

}  // namespace

TrainerWords translate_trainer_words(const std::vector<std::string>& words) {
  return TrainerTranslation(words).translate();
}

std::string with_typed_names(std::string message, std::span<const FlagAlias> aliases) {
  for (const auto& [typed, own] : aliases) {
    for (size_t at = message.find(own); at != std::string::npos; at = message.find(own, at + 1)) {
      const size_t end = at + own.size();
      const bool is_whole = (at == 0 || !is_name_character(message[at - 1])) &&
                            (end == message.size() || !is_name_character(message[end]));
      if (!is_whole) continue;
      message.replace(at, own.size(), fmt::format("{} ({})", typed, own));
      break;
    }
  }
  return message;
}

}  // namespace fullshard::cli
