// SPDX-License-Identifier: Apache-2.0
#include "fullshard/cli/flags/checkpoint_arguments.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <array>
#include <string_view>
#include <utility>

#include "fullshard/base/bytes.h"
#include "fullshard/base/error.h"
#include "fullshard/cli/flags/value_checks.h"

namespace fullshard::cli {

CheckpointArguments::CheckpointArguments(CLI::App& app)
    : command_(
          app.add_subcommand("checkpoint", "look into, check, compare and convert checkpoints")) {
  command_->require_subcommand(1, 1);
  command_->footer(
      "DIR is a checkpoint of Fullshard, DeepSpeed (ZeRO-1 to 3), torch.distributed.checkpoint, "
      "Accelerate or the Trainer, a Hugging Face folder, or one file of weights; its content "
      "tells which.\n"
      "Exit status 4: the checkpoint is damaged or incomplete.");
  inspect_ = add_action("inspect", "what a checkpoint holds");
  inspect_->add_flag_callback(
      "--summary", [this] { options_.lists_tensors = false; }, "only the sums, not every tensor");
  verify_ = add_action("verify", "read it whole and compare all checksums");

  to_fp32_ = add_action("to-fp32", "its fp32 weights as files for torch.load or safetensors");
  add_output(*to_fp32_, "a folder, or a file that ends in .bin or .safetensors");
  add_size(*to_fp32_);
  to_fp32_->add_flag("--safe-serialization", options_.safetensors,
                     "write safetensors, not files of torch.load");
  to_fp32_->add_flag_callback(
      "--exclude-frozen-parameters", [this] { options_.with_frozen = false; },
      "leave out parameters that were not trained");
  to_fp32_->add_flag("-d,--debug", debug_, "accepted for zero_to_fp32.py's sake; changes nothing");

  export_ = add_action("export", "its weights as a Hugging Face folder of safetensors");
  add_output(*export_, "a folder, or a file that ends in .safetensors");
  add_size(*export_);

  convert_ = add_action("convert", "its weights in another program's form");
  add_output(*convert_, "a folder; for safetensors and bin also a file with that ending");
  add_size(*convert_);
  convert_->add_option("--to", options_.form, "safetensors, bin, dcp or deepspeed")
      ->check(one_of({"safetensors", "bin", "dcp", "deepspeed"}))
      ->required();
  for (CLI::App* action : {export_, convert_}) {
    action
        ->add_option("--dtype", options_.dtype,
                     "dtype of floating tensors: fp32, bf16, fp16 or keep")
        ->check(one_of({"fp32", "bf16", "fp16", "keep"}))
        ->capture_default_str();
  }

  diff_ = add_action("diff", "differences between two checkpoints");
  diff_->add_option("other", options_.other, "the second checkpoint, of any kind")->required();
  diff_->add_option("--tolerance", options_.tolerance, "largest absolute difference")
      ->check(at_least_zero())
      ->capture_default_str();

  save_ = command_->add_subcommand("save", "let a running training save a checkpoint now");
  save_->add_option("path", options_.path, "the run's --output folder")->required();
  save_->add_option("name", options_.name, "name of the checkpoint")->required();
  save_->add_flag("--json", options_.json, "machine-readable standard output");
  add_merge_lora();
}

void CheckpointArguments::add_merge_lora() {
  merge_lora_ = command_->add_subcommand("merge-lora", "a model and a LoRA adapter as one model");
  merge_lora_
      ->add_option("--model", options_.model,
                   "the base: a Hugging Face folder, or a name in the cache")
      ->required();
  merge_lora_->add_option("--adapter", options_.adapter, "a folder of PEFT's, or a run's adapter/")
      ->required();
  merge_lora_->add_option("-o,--output", options_.output, "folder for the merged model")
      ->required();
  add_overwrite(*merge_lora_);
  merge_lora_
      ->add_option("--dtype", merged_dtype_, "dtype of floating tensors: fp32, bf16, fp16 or keep")
      ->check(one_of({"fp32", "bf16", "fp16", "keep"}))
      ->capture_default_str();
  add_size(*merge_lora_);
  merge_lora_->add_flag("--json", options_.json, "machine-readable standard output");
}

CLI::App* CheckpointArguments::add_action(const char* name, const char* help) {
  CLI::App* action = command_->add_subcommand(name, help);
  action->add_option("path", options_.path, "the checkpoint")->required();
  action->add_option("-t,--tag", options_.tag, "which one of the folder; default: the latest");
  action->add_flag("--json", options_.json, "machine-readable standard output");
  return action;
}

void CheckpointArguments::add_output(CLI::App& action, const char* help) {
  action.add_option("output", options_.output, help)->required();
  add_overwrite(action);
}

void CheckpointArguments::add_overwrite(CLI::App& action) {
  action.add_flag("--overwrite", options_.overwrite, "even if something is already there");
}

void CheckpointArguments::add_size(CLI::App& action) {
  action
      .add_option("--max-shard-size", max_shard_size_,
                  "largest file; more becomes several with an index")
      ->capture_default_str();
}

bool CheckpointArguments::was_chosen() const { return command_->parsed(); }

CheckpointCommandOptions CheckpointArguments::options() const {
  CheckpointCommandOptions options = options_;
  const std::array<std::pair<const CLI::App*, CheckpointAction>, 8> actions = {{
      {inspect_, CheckpointAction::inspect},
      {verify_, CheckpointAction::verify},
      {to_fp32_, CheckpointAction::to_fp32},
      {export_, CheckpointAction::export_model},
      {convert_, CheckpointAction::convert},
      {diff_, CheckpointAction::diff},
      {save_, CheckpointAction::save},
      {merge_lora_, CheckpointAction::merge_lora},
  }};
  for (const auto& [parser, action] : actions) {
    if (parser->parsed()) options.action = action;
  }
  if (merge_lora_->parsed()) options.dtype = merged_dtype_;
  options.max_file_bytes = parse_file_size(max_shard_size_, "--max-shard-size");
  return options;
}

int64_t parse_file_size(const std::string& text, const std::string& where) {
  const auto bytes = parse_bytes(text);
  if (!bytes) {
    fail_as(ErrorKind::usage, "{}: is '{}', expected a size such as 5GB or 500MB", where, text);
  }
  return *bytes;
}

}  // namespace fullshard::cli
