// SPDX-License-Identifier: Apache-2.0
#include "fullshard/cli/commands/config_command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "fullshard/base/error.h"
#include "fullshard/cli/flags/config_flags.h"
#include "fullshard/cli/flags/cuda_build.h"
#include "fullshard/cli/flags/value_checks.h"
#include "fullshard/config/config_templates.h"
#include "fullshard/config/convert.h"
#include "fullshard/config/document/reader.h"
#include "fullshard/config/explain.h"
#include "fullshard/config/plan.h"
#include "fullshard/config/questionnaire.h"
#include "fullshard/config/schema/support_page.h"
#include "fullshard/launch/devices.h"

namespace fullshard::cli {
namespace {

constexpr int kBadConfiguration = static_cast<int>(ErrorKind::usage);

void check_may_write(const std::string& path, bool overwrites) {
  if (overwrites || !std::filesystem::exists(path)) return;
  fail_as(ErrorKind::usage,
          "{}: already exists; add --overwrite, or name another file with "
          "--output",
          path);
}

void write_config(const std::string& path, const std::string& text) {
  if (const auto folder = std::filesystem::path(path).parent_path(); !folder.empty()) {
    std::filesystem::create_directories(folder);
  }
  std::ofstream file(path);
  if (!(file << text) || !file.flush()) {
    fail("{}: cannot be written; name another file with --output", path);
  }
}

}  // namespace

ConfigCommand::ConfigCommand(CLI::App& app)
    : command_(app.add_subcommand("config", "write, check, explain or convert a configuration")) {
  command_->require_subcommand(0, 1);
  command_->footer(
      "Without a subcommand it asks and writes the file that other commands use when "
      "none is named.");
  command_->add_option("-o,--output", output_, "file to write in place of the default one");
  command_->add_flag("--overwrite", overwrite_, "replace the file if it is there");
  check_ = command_->add_subcommand("check", "list everything that is wrong with a file");
  add_common(*check_);
  explain_ =
      command_->add_subcommand("explain", "effective values, where they are from, what they do");
  add_common(*explain_);
  explain_->add_option("--hidden-size", hidden_size_, "hidden size of the model, for \"auto\"")
      ->check(above_zero());
  convert_ = command_->add_subcommand("convert", "write the file in the other format");
  add_common(*convert_);
  convert_->add_option("--to", target_, "accelerate or deepspeed")
      ->required()
      ->check(one_of({"accelerate", "deepspeed"}));
  convert_
      ->add_option(
          "--type", accelerate_type_,
          "type of Accelerate's file: FSDP, or DEEPSPEED, which names the DeepSpeed file and so "
          "keeps all it says")
      ->check(one_of({"FSDP", "DEEPSPEED"}))
      ->capture_default_str();
  convert_->add_option("-o,--output", output_, "file to write; default: standard output");
  convert_->add_flag("--overwrite", overwrite_, "replace the file if it is there");
  support_ = command_->add_subcommand("support", "the page of all keys, as Markdown");
  template_ = command_->add_subcommand("template", "list ready files, or write one");
  template_->add_option("name", template_name_, "which one; without it they are listed");
  template_->add_option("-o,--output", output_, "file to write; default: standard output");
  template_->add_flag("--overwrite", overwrite_, "replace the file if it is there");
  template_->add_flag("--plain", is_plain_,
                      "without comments, which the Trainer's JSON does not allow");
}

void ConfigCommand::add_common(CLI::App& command) {
  command.add_option("file", file_, "Accelerate YAML, DeepSpeed JSON or the Trainer's fsdp_config")
      ->required();
  command.add_flag("--json", json_, "machine-readable output");
  add_unknown_keys(command, allow_unknown_);
  command.add_flag("--allow-unknown", allow_unknown_, "the same as --unknown-keys warn");
  command.add_option("--set", overrides_, "key=value in place of the file's")
      ->expected(1)
      ->take_all();
  command.add_option("-n,--ranks", ranks_, "how many ranks")->check(within(1, 65536));
  command.add_option("--device", device_, "cpu or cuda")->check(one_of({"cpu", "cuda"}));
}

bool ConfigCommand::was_chosen() const { return command_->parsed(); }

int ConfigCommand::run() const {
  if (check_->parsed()) return check();
  if (explain_->parsed()) return explain_file();
  if (convert_->parsed()) return convert_file();
  if (template_->parsed()) return write_template();
  if (support_->parsed()) {
    fmt::print("{}", config::support_page());
    return 0;
  }
  return ask();
}

PlanReading ConfigCommand::read(bool assumes_one_rank) const {
  PlanOptions options{.allow_unknown = allow_unknown_, .overrides = overrides_};
  if (ranks_ > 0) options.ranks = ranks_;
  if (assumes_one_rank) options.assumed_ranks = 1;
  if (!device_.empty()) options.device = device_;
  if (hidden_size_ > 0) options.inputs.hidden_size = hidden_size_;
  const config::ConfigText source = config::read_config_file(file_);
  return read_plan(source.text, source.name, options);
}

int ConfigCommand::check() const {
  const PlanReading reading = read(false);
  if (json_) {
    fmt::print("{}\n", reading.problems.json());
  } else {
    fmt::print(stderr, "{}", reading.problems.text());
    if (reading.problems.ok()) {
      fmt::print("{}: {} configuration, no problems\n", file_,
                 config::name_of(reading.plan.settings()->family()));
    }
  }
  return reading.problems.ok() ? 0 : kBadConfiguration;
}

int ConfigCommand::explain_file() const {
  const PlanReading reading = read(true);
  fmt::print(stderr, "{}", reading.problems.text());
  if (!reading.problems.ok()) return kBadConfiguration;
  const config::Explanation explanation =
      config::explain(reading.plan, ranks_ > 0 ? std::optional(ranks_) : std::nullopt);
  fmt::print("{}", json_ ? explanation.json() + "\n" : explanation.text());
  return 0;
}

int ConfigCommand::convert_file() const {
  PlanReading reading = read(false);
  fmt::print(stderr, "{}", reading.problems.text());
  if (!reading.problems.ok()) return kBadConfiguration;
  if (ranks_ > 0) reading.plan.launch.ranks = std::optional(ranks_);  // DeepSpeed has no key for it
  const config::Conversion result = convert(reading.plan);
  if (output_.empty()) {
    fmt::print("{}", result.text);
  } else {
    check_may_write(output_, overwrite_);
    write_config(output_, result.text);
    fmt::print("{}: written\n", output_);
  }
  for (const std::string& note : result.notes) fmt::print(stderr, "note: {}: {}\n", file_, note);
  return 0;
}

config::Conversion ConfigCommand::convert(const Plan& plan) const {
  if (target_ == "deepspeed") return config::convert_to_deepspeed(plan);
  const bool is_deepspeed = plan.settings()->family() == config::Family::deepspeed;
  if (accelerate_type_ == "DEEPSPEED") {
    if (!is_deepspeed || !std::filesystem::exists(file_)) {
      fail_as(ErrorKind::usage,
              "config convert: --type: is DEEPSPEED, but {} is not a DeepSpeed file", file_);
    }
    const std::optional<int64_t> ranks = plan.launch.ranks.value;
    config::Conversion named{
        .text = config::accelerate_text_naming(std::filesystem::absolute(file_).string(), ranks,
                                               device_ == "cpu")};
    if (!ranks) {
      named.notes.emplace_back(
          "num_processes: the file does not say how many ranks; 1 is written: "
          "give --ranks");
    }
    return named;
  }
  config::Conversion result = config::convert_to_accelerate(plan);
  if (is_deepspeed && !result.notes.empty()) {
    result.notes.emplace_back("--type DEEPSPEED keeps all of it: Accelerate's file names this one");
  }
  return result;
}

int ConfigCommand::write_template() const {
  if (template_name_.empty()) {
    for (const config::ConfigTemplate& file : config::config_templates()) {
      fmt::print("{:<14} {:<6} {}\n", file.name, file.file.substr(file.name.size() + 1),
                 file.summary());
    }
    return 0;
  }
  const config::ConfigTemplate& file = config::find_config_template(template_name_);
  const std::string text = is_plain_ ? file.plain_text() : std::string(file.text);
  if (output_.empty()) {
    fmt::print("{}", text);
    return 0;
  }
  check_may_write(output_, overwrite_);
  write_config(output_, text);
  fmt::print("{}: written\n", output_);
  return 0;
}

int ConfigCommand::ask() const {
  const std::string path = output_.empty() ? config::default_config_path() : output_;
  if (path.empty()) {
    fail_as(ErrorKind::usage,
            "config: neither HOME nor XDG_CONFIG_HOME is set; name a file with "
            "--output");
  }
  check_may_write(path, overwrite_);
  const bool has_gpus = is_cuda_build() && launch::num_visible_gpus() > 0;
  const std::string text = config::ask_for_config(std::cin, std::cout, has_gpus);
  Plan::parse(text, path);  // the answers must be consistent
  write_config(path, text);
  fmt::print("{}: written{}\n", path,
             output_.empty() ? "; launch and train use it when no --config is given" : "");
  return 0;
}

}  // namespace fullshard::cli
