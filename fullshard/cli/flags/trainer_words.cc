// SPDX-License-Identifier: Apache-2.0
#include "fullshard/cli/flags/trainer_words.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include "fullshard/base/error.h"
#include "fullshard/cli/flags/own_words.h"
#include "fullshard/cli/flags/trainer_flags.h"
#include "fullshard/cli/flags/trainer_line.h"
#include "fullshard/cli/flags/trainer_values.h"

namespace fullshard::cli {
namespace {

constexpr int64_t kTrainerInterval = 500;  // the Trainer's default for evaluations and checkpoints

// Flags of the Trainer that `generate` uses although `train` ignores them.
constexpr std::array<std::pair<std::string_view, std::string_view>, 3> kOfGeneration = {
    {{"test_file", "--prompts"},
     {"generation_max_length", "--max-new-tokens"},
     {"generation_num_beams", "--num-beams"}}};

RunKind kind_of(const std::vector<std::string>& words) {
  const std::string command = words.empty() ? "" : words.front();
  if (command == "eval") return RunKind::eval;
  if (command == "generate") return RunKind::generate;
  return command == "tune" ? RunKind::tune : RunKind::train;
}

class TrainerTranslation {
 public:
  explicit TrainerTranslation(const std::vector<std::string>& words)
      : own_(words, kind_of(words)) {}

  TrainerWords translate() && {
    for (const GivenFlag& given : own_.line().given) translate(given);
    translate_data();
    translate_intervals();
    translate_warmup();
    translate_adapter();
    check_evaluation();
    own_.finish(result_);
    return std::move(result_);
  }

 private:
  using Kind = TrainerFlagKind;

  const GivenFlag* find(std::string_view name) const { return own_.line().find(name); }
  bool only_computes() const { return cli::only_computes(own_.kind()); }
  bool put(const GivenFlag& given, const std::string& own, const std::string& value) {
    return own_.put(given, own, value);
  }
  bool is_said(const std::string& own) const { return own_.is_said(own); }

  void warn(const GivenFlag& given, std::string_view why) {
    result_.warnings.push_back(fmt::format("{}: without effect: {}", given.typed, why));
  }

  // --- Single flags.

  void translate(const GivenFlag& given) {
    if (own_.kind() == RunKind::generate) {
      for (const auto& [theirs, own] : kOfGeneration) {
        if (theirs != given.flag->name) continue;
        put(given, std::string(own), given.value());
        return;
      }
      if (given.flag->name == "do_predict") return;
    }
    switch (given.flag->kind) {
      case Kind::value:
        return own_.put_list(given, std::string(given.flag->own));
      case Kind::truth:
        if (given.is_true()) put(given, std::string(given.flag->own), "");
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
        put(given, std::string(given.flag->own), given.value());
        return;
    }
  }

  // Flags that are not in the list are combined with others, below.
  void translate_special(const GivenFlag& given) {
    for (const auto& [name, act] : kSpecials) {
      if (name == given.flag->name) return (this->*act)(given);
    }
  }

  // The flag and value in the table, such as "--precision fp16".
  void whole_words(const GivenFlag& given) {
    if (!given.is_true()) return;
    const std::string words(given.flag->own);
    const size_t space = words.find(' ');
    put(given, words.substr(0, space), words.substr(space + 1));
  }

  void tf32(const GivenFlag& given) { put(given, "--tf32", given.is_true() ? "on" : "off"); }

  // Apex and torch both compute in fp16 with fp32 masters, as is done here.
  void fp16_backend(const GivenFlag& given) {
    constexpr std::array kNames = {"auto", "amp", "apex", "cuda_amp", "cpu_amp"};
    if (std::ranges::find(kNames, given.value()) != kNames.end()) return;
    fail_as(ErrorKind::usage, "{}: is '{}', expected auto, amp or apex", given.typed,
            given.value());
  }

  // Apex's O1 and O2 do the same; a guide writes the O as the digit 0.
  void fp16_opt_level(const GivenFlag& given) {
    const std::string& level = given.value();
    const bool is_level = level.size() == 2 &&
                          std::string_view("Oo0").find(level[0]) != std::string_view::npos &&
                          level[1] >= '0' && level[1] <= '3';
    if (!is_level) {
      fail_as(ErrorKind::usage, "{}: is '{}', expected O0, O1, O2 or O3", given.typed, level);
    }
    if (level[1] == '0') {
      fail_as(ErrorKind::usage, "{}: O0 is fp32; leave it and --fp16 out", given.typed);
    }
    if (level[1] == '3') {
      fail_as(ErrorKind::usage,
              "{}: O3 keeps no fp32 masters; a DeepSpeed file says so with "
              "fp16.fp16_master_weights_and_grads",
              given.typed);
    }
  }

  void max_steps(const GivenFlag& given) {
    if (number_of(given.value()).value_or(1) > 0) put(given, "--steps", given.value());
  }

  void max_train_samples(const GivenFlag& given) { put(given, "--max-samples", given.value()); }

  void optim(const GivenFlag& given) {
    const auto name = optimizer_named(given.value());
    if (!name) {
      fail_as(ErrorKind::usage,
              "{}: '{}' is not supported; use adamw_torch, sgd, adagrad or lion_32bit, or "
              "--optimizer",
              given.typed, given.value());
    }
    put(given, "--optimizer", std::string(*name));
  }

  void do_train(const GivenFlag& given) {
    if (own_.is_switched()) return;
    if (given.is_true() && only_computes()) {
      fail_as(ErrorKind::usage, "{}: {} does not train; use fullshard train", given.typed,
              own_.line().command.front());
    }
    if (!given.is_true() && !only_computes()) {
      fail_as(ErrorKind::usage, "{}: is false, but train trains; use fullshard eval", given.typed);
    }
  }

  void do_eval(const GivenFlag& given) {
    if (own_.kind() != RunKind::generate || !given.is_true()) return;
    fail_as(ErrorKind::usage, "{}: generate does not evaluate; use fullshard eval", given.typed);
  }

  void save_total_limit(const GivenFlag& given) {
    if (number_of(given.value()).value_or(1) > 0) put(given, "--keep", given.value());
  }

  void resume_from_checkpoint(const GivenFlag& given) {
    const auto truth = given.values.empty() ? std::optional(true) : truth_of(given.values.front());
    put(given, "--resume", !truth ? given.values.front() : *truth ? "auto" : "none");
  }

  void metric_for_best_model(const GivenFlag& given) {
    if (given.value() == "loss" || given.value() == "eval_loss") return;
    fail_as(ErrorKind::usage, "{}: is '{}', expected loss or eval_loss", given.typed,
            given.value());
  }

  void report_to(const GivenFlag& given) {
    given.value();
    const std::string target = report_target(given.typed, given.values);
    if (target != "none") put(given, "--report-to", target);
  }

  void logging_steps(const GivenFlag& given) {
    if (number_of(given.value()).value_or(1) < 1) {
      return warn(given, "a share of the run is not supported; every step is logged");
    }
    put(given, "--log-every", given.value());
  }

  // --- Flags that are combined.

  void translate_data() {
    if (const GivenFlag* model = find("model_name_or_path")) {
      put(*model, "--model", model->value());
      const bool may_be_preset = is_said("--from-scratch") || only_computes();
      if (!may_be_preset) put(*model, "--pretrained", "");
    }
    if (const GivenFlag* config = find("config_name")) {
      if (find("model_name_or_path") != nullptr) {
        warn(*config, "the model's own configuration is used");
      } else {
        put(*config, "--model", config->value());
        put(*config, "--from-scratch", "");
      }
    }
    if (const GivenFlag* dataset = find("dataset_name")) {
      const GivenFlag* config = find("dataset_config_name");
      if (config == nullptr) config = find("dataset_config");
      const std::string name = dataset->value() + (config == nullptr ? "" : ":" + config->value());
      if (!only_computes()) put(*dataset, "--data", name);
      const bool is_evaluated = only_computes() || wants_evaluation() != nullptr;
      if (is_evaluated && !is_said("--eval-data")) put(*dataset, "--eval-data", name);
    }
    translate_samples();
  }

  // max_train_samples limits the training data only; --max-samples limits both.
  void translate_samples() {
    const GivenFlag* samples = find("max_train_samples");
    const bool evaluates = is_said("--eval-data") && !only_computes();
    if (samples != nullptr && evaluates && !is_said("--max-eval-samples")) {
      put(*samples, "--max-eval-samples", "0");
    }
  }

  const GivenFlag* eval_strategy() const {
    const GivenFlag* strategy = find("eval_strategy");
    return strategy != nullptr ? strategy : find("evaluation_strategy");
  }

  // The flag that asks for an evaluation, or null.
  const GivenFlag* wants_evaluation() const {
    if (const GivenFlag* flag = find("do_eval"); flag != nullptr && flag->is_true()) return flag;
    const GivenFlag* strategy = eval_strategy();
    if (strategy != nullptr && strategy->value() != "no") return strategy;
    return strategy == nullptr ? find("eval_steps") : nullptr;
  }

  void translate_intervals() {
    translate_interval(eval_strategy(), find("eval_steps"), "--eval-every");
    const GivenFlag* saving = find("save_strategy");
    if (saving != nullptr && saving->value() == "best") {
      put(*saving, "--keep-best", "");
      if (const GivenFlag* steps = find("save_steps")) warn(*steps, "the strategy is best");
      return;
    }
    translate_interval(saving, find("save_steps"), "--save-every");
  }

  void translate_interval(const GivenFlag* strategy, const GivenFlag* steps,
                          const std::string& own) {
    const std::string name = strategy == nullptr ? "steps" : strategy->value();
    if (name == "steps") {
      if (steps != nullptr) {
        put(*steps, own, steps->value());
      } else if (strategy != nullptr) {
        put(*strategy, own, fmt::format("{}", kTrainerInterval));
      }
      return;
    }
    if (name != "no" && name != "epoch") {
      fail_as(ErrorKind::usage, "{}: is '{}', expected no, steps or epoch", strategy->typed, name);
    }
    if (steps != nullptr) warn(*steps, fmt::format("{} is {}", strategy->typed, name));
    if (name == "epoch") put(*strategy, own, "epoch");
  }

  // Without a named schedule, the Trainer's warm-up belongs to its linear schedule. A DeepSpeed
  // file may have its own schedule.
  void translate_warmup() {
    const GivenFlag* steps = find("warmup_steps");
    const GivenFlag* ratio = find("warmup_ratio");
    const auto is_set = [](const GivenFlag* given) {
      return given != nullptr && number_of(given->value()).value_or(1) != 0;
    };
    if (is_set(steps) && is_set(ratio)) {
      warn(*ratio, fmt::format("{} is given", steps->typed));
      ratio = nullptr;
    }
    const GivenFlag* warmup = is_set(ratio) ? ratio : steps != nullptr ? steps : ratio;
    if (warmup == nullptr) return;
    put(*warmup, "--warmup", warmup->value());
    if (is_set(warmup) && !is_said("--schedule") && !has_deepspeed_file()) {
      put(*warmup, "--schedule", "linear");
    }
  }

  // The defaults of TRL's ModelConfig.
  void translate_adapter() {
    const GivenFlag* given = find("use_peft");
    if (given == nullptr || !given->is_true() || is_said("--adapter")) return;
    for (const auto& [own, value] :
         {std::pair("--lora-rank", "16"), std::pair("--lora-alpha", "32"),
          std::pair("--lora-dropout", "0.05")}) {
      if (!is_said(own)) put(*given, own, value);
    }
  }

  bool has_deepspeed_file() const {
    return std::ranges::any_of(own_.line().own, [](const OwnFlag& flag) {
      const bool is_config = flag.name == "--config" || flag.name == "--config-file";
      return flag.name == "--deepspeed" || (is_config && flag.value.ends_with(".json"));
    });
  }

  void check_evaluation() const {
    const GivenFlag* asked = wants_evaluation();
    const bool is_named = only_computes() && !own_.is_switched();  // by the command itself
    if (asked == nullptr || is_named || is_said("--eval-data")) return;
    fail_as(ErrorKind::usage,
            "{}: no evaluation data; name them with --validation_file (--eval-data)", asked->typed);
  }

  struct Special {
    std::string_view name;
    void (TrainerTranslation::*act)(const GivenFlag&);
  };
  static const std::array<Special, 22> kSpecials;

  OwnWords own_;
  TrainerWords result_;
};

const std::array<TrainerTranslation::Special, 22> TrainerTranslation::kSpecials = {{
    {"fp16", &TrainerTranslation::whole_words},
    {"bf16", &TrainerTranslation::whole_words},
    {"fp16_full_eval", &TrainerTranslation::whole_words},
    {"bf16_full_eval", &TrainerTranslation::whole_words},
    {"use_cpu", &TrainerTranslation::whole_words},
    {"load_in_8bit", &TrainerTranslation::whole_words},
    {"no_cuda", &TrainerTranslation::whole_words},
    {"tf32", &TrainerTranslation::tf32},
    {"no_tf32", &TrainerTranslation::whole_words},
    {"fp16_backend", &TrainerTranslation::fp16_backend},
    {"half_precision_backend", &TrainerTranslation::fp16_backend},
    {"fp16_opt_level", &TrainerTranslation::fp16_opt_level},
    {"max_steps", &TrainerTranslation::max_steps},
    {"max_train_samples", &TrainerTranslation::max_train_samples},
    {"optim", &TrainerTranslation::optim},
    {"do_train", &TrainerTranslation::do_train},
    {"do_eval", &TrainerTranslation::do_eval},
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
