// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "fullshard/config/document/reader.h"
#include "fullshard/config/launched_config.h"
#include "fullshard/config/plan.h"
#include "fullshard/config/plan_maker.h"
#include "fullshard/config/schema/value_check.h"

namespace fullshard {
namespace {

struct ConfigArguments {
  std::string deepspeed{};
  std::string fsdp{};
  std::string fsdp_config{};
  std::string config{};
  bool has_fsdp = false;
};

// Removes the arguments for the configuration and closes the gaps between the others.
class ArgumentTaker {
 public:
  ArgumentTaker(int& count, char** arguments, PlanOptions& options)
      : count_(count), arguments_(arguments), options_(options) {}

  ConfigArguments take() {
    int kept = std::min(count_, 1);
    for (at_ = 1; at_ < count_; ++at_) {
      // What follows "--" belongs to the program.
      if (std::strcmp(arguments_[at_], "--") == 0) {
        while (at_ < count_) arguments_[kept++] = arguments_[at_++];
        break;
      }
      if (!take_one()) arguments_[kept++] = arguments_[at_];
    }
    count_ = kept;
    arguments_[kept] = nullptr;
    return std::move(found_);
  }

 private:
  bool take_one() {
    std::string_view word = arguments_[at_];
    if (!word.starts_with("--")) return false;
    word.remove_prefix(2);
    const size_t split = word.find('=');
    const std::string name = config::plain_name(word.substr(0, split));
    if (name == "allow_unknown") {
      options_.allow_unknown = true;
      return true;
    }
    if (name == "fsdp" && split == std::string_view::npos && !has_value()) {
      found_.fsdp = "true";  // the Trainer's --fsdp without words
      found_.has_fsdp = true;
      return true;
    }
    std::string* target = name == "deepspeed"     ? &found_.deepspeed
                          : name == "fsdp"        ? &found_.fsdp
                          : name == "fsdp_config" ? &found_.fsdp_config
                          : name == "config"      ? &found_.config
                                                  : nullptr;
    if (target == nullptr && name != "set" && name != "unknown_keys") return false;
    std::string value;
    if (split != std::string_view::npos) {
      value = word.substr(split + 1);
    } else if (at_ + 1 < count_) {
      value = arguments_[++at_];
    } else {
      fail_as(ErrorKind::usage, "--{}: has no value; write --{} {}", name, name,
              name == "set"            ? "key=value"
              : name == "unknown_keys" ? "warn"
                                       : "FILE");
    }
    if (name == "fsdp") found_.has_fsdp = true;
    if (name == "unknown_keys") {
      take_unknown_keys(value);
    } else if (target == nullptr) {
      options_.overrides.push_back(std::move(value));
    } else {
      *target = std::move(value);
    }
    return true;
  }

  bool has_value() const {
    return at_ + 1 < count_ && std::strncmp(arguments_[at_ + 1], "--", 2) != 0;
  }

  void take_unknown_keys(const std::string& word) {
    if (word != "warn" && word != "error") {
      fail_as(ErrorKind::usage, "--unknown-keys: is '{}', expected error or warn", word);
    }
    options_.allow_unknown = word == "warn";
  }

  int& count_;
  char** arguments_;
  PlanOptions& options_;
  ConfigArguments found_;
  int at_ = 1;
};

}  // namespace

Plan Plan::from_words(const std::string& words, const std::string& config_file,
                      const PlanOptions& options) {
  Problems problems;
  config::PlanMaker maker(options, problems);
  const auto make = [&] {
    if (!words.empty() || !config_file.empty()) return maker.make_from_words(words, config_file);
    if (config::is_sharded_by_accelerate()) return maker.make_from_environment();
    return maker.make_default();
  };
  Plan plan = make();
  problems.throw_if_any();
  return plan;
}

Plan Plan::from_arguments(int& count, char** arguments, const PlanOptions& given) {
  PlanOptions options = given;
  const config::LaunchedConfig launched =
      config::launched_config(base::LauncherEnvironment::of_process());
  options.allow_unknown = options.allow_unknown || launched.allow_unknown;
  // Later ones win: the launcher's, then the program's, then its arguments'.
  const auto before = config::overrides_of(launched.overrides, given.overrides);
  options.overrides.clear();
  const ConfigArguments found = ArgumentTaker(count, arguments, options).take();
  options.overrides = config::overrides_of(before, options.overrides);
  std::vector<std::string_view> kinds;
  if (!found.deepspeed.empty()) kinds.push_back("--deepspeed");
  if (found.has_fsdp || !found.fsdp_config.empty()) kinds.push_back("--fsdp");
  if (!found.config.empty()) kinds.push_back("--config");
  if (kinds.size() > 1) {
    fail_as(ErrorKind::usage, "{}: given together with {}; keep one of them", kinds[0], kinds[1]);
  }
  if (!found.config.empty()) return load(found.config, options);
  if (!found.deepspeed.empty()) return load(found.deepspeed, options);
  if (kinds.empty() && !launched.file.empty()) return load(launched.file, options);
  Problems problems;
  config::PlanMaker maker(options, problems);
  Plan plan = !kinds.empty()         ? maker.make_from_words(found.fsdp, found.fsdp_config)
              : launched.has_words() ? maker.make_from_words(launched.fsdp, launched.fsdp_config)
                                     : maker.make_from_environment();
  problems.throw_if_any();
  return plan;
}

}  // namespace fullshard
