// SPDX-License-Identifier: Apache-2.0
#include "fullshard/worker/checkpoint_run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "fullshard/base/bytes.h"
#include "fullshard/base/error.h"
#include "fullshard/base/file_kind.h"
#include "fullshard/base/printable.h"
#include "fullshard/checkpoint/deepspeed_export.h"
#include "fullshard/checkpoint/diff_checkpoints.h"
#include "fullshard/checkpoint/save_request.h"
#include "fullshard/checkpoint/verify_checkpoint.h"
#include "fullshard/cli/commands/fp32_command.h"
#include "fullshard/formats/free_place.h"
#include "fullshard/formats/input_error.h"
#include "fullshard/formats/replace_file.h"
#include "fullshard/report/records/run_lock.h"
#include "fullshard/report/records/run_record.h"
#include "fullshard/stored/any_checkpoint.h"
#include "fullshard/stored/flat_checkpoint.h"
#include "fullshard/stored/fp32_export.h"
#include "fullshard/train/merge_adapter.h"
#include "fullshard/train/model_weights.h"
#include "fullshard/worker/checkpoint_table.h"
#include "fullshard/worker/exported_tokenizer.h"

namespace fullshard::worker {
namespace {

using nlohmann::json;

// Names in a checkpoint are another program's: bytes that are not UTF-8 are replaced.
void print_json(const json& value) {
  fmt::print("{}\n", value.dump(-1, ' ', false, json::error_handler_t::replace));
}

int inspect(const cli::CheckpointCommandOptions& options) {
  const stored::AnyCheckpoint checkpoint = stored::open_any(options.path, {.tag = options.tag});
  if (options.json) {
    print_json(checkpoint_json(checkpoint));
  } else {
    fmt::print("{}", checkpoint_table(checkpoint, options.lists_tensors));
  }
  return 0;
}

std::string checksum_text(const checkpoint::VerifyResult& result) {
  if (!result.has_sums) return "its files carry no checksums";
  if (result.without_sums.empty()) return "all checksums right";
  return fmt::format("all checksums right; {} carries none", fmt::join(result.without_sums, ", "));
}

int verify(const cli::CheckpointCommandOptions& options) {
  const stored::AnyCheckpoint checkpoint = stored::open_any(options.path, {.tag = options.tag});
  const checkpoint::VerifyResult result = checkpoint::verify_checkpoint(checkpoint);
  if (options.json) {
    json odd = json::array();
    for (const auto& found : result.not_finite) {
      odd.push_back({{"part", found.part}, {"tensor", found.tensor}, {"count", found.count}});
    }
    print_json({{"ok", true},
                {"kind", checkpoint.kind},
                {"path", checkpoint.path},
                {"tensors", result.num_tensors},
                {"bytes", result.bytes},
                {"checksums", result.has_sums},
                {"without_checksums", result.without_sums},
                {"not_finite", odd}});
    return 0;
  }
  for (const auto& found : result.not_finite) {
    fmt::print(stderr, "warning: {}: {} of '{}': {} values are not finite\n",
               base::printable(checkpoint.path), base::printable(found.part),
               base::printable(found.tensor), found.count);
  }
  fmt::print("{}: whole: {} tensors, {}, {}\n", base::printable(checkpoint.path),
             result.num_tensors, format_bytes(result.bytes), checksum_text(result));
  return 0;
}

int diff(const cli::CheckpointCommandOptions& options) {
  const stored::AnyCheckpoint first = stored::open_any(options.path, {.tag = options.tag});
  const stored::AnyCheckpoint second = stored::open_any(options.other);
  const checkpoint::CheckpointDiff found =
      checkpoint::diff_checkpoints(first, second, options.tolerance);
  const bool is_equal = found.differences.empty();
  if (options.json) {
    print_json(diff_json(found));
  } else if (is_equal) {
    fmt::print("equal: {} tensors\n", found.num_compared);
  } else {
    fmt::print("{}", diff_table(found));
  }
  return is_equal ? 0 : 1;
}

std::optional<at::ScalarType> dtype_of(const std::string& name) {
  if (name == "keep") return std::nullopt;
  return name == "bf16" ? at::kBFloat16 : name == "fp16" ? at::kHalf : at::kFloat;
}

void print_files(const cli::CheckpointCommandOptions& options,
                 const stored::AnyCheckpoint& checkpoint, const std::vector<std::string>& files) {
  if (options.json) {
    print_json({{"kind", checkpoint.kind}, {"path", checkpoint.path}, {"files", files}});
  } else {
    for (const auto& file : files) fmt::print("{}\n", file);
  }
}

void append(std::vector<std::string>& files, const std::vector<std::string>& more) {
  files.insert(files.end(), more.begin(), more.end());
}

// Exports what was trained next to a frozen base as a PEFT folder.
int export_adapter(const cli::CheckpointCommandOptions& options,
                   const stored::AnyCheckpoint& checkpoint) {
  formats::check_is_free(options.output, options.overwrite);
  auto files = stored::export_weights(checkpoint, options.output + "/adapter_model.safetensors",
                                      {.dtype = dtype_of(options.dtype),
                                       .max_file_bytes = std::numeric_limits<int64_t>::max(),
                                       .safetensors = true})
                   .files;
  files.push_back(options.output + "/adapter_config.json");
  formats::replace_file(files.back(), checkpoint.adapter);
  append(files, export_tokenizer(checkpoint, options.output));
  print_files(options, checkpoint, files);
  return 0;
}

// The dtype of the tensors that --dtype applies to.
at::ScalarType written_dtype(const cli::CheckpointCommandOptions& options,
                             const stored::AnyCheckpoint& checkpoint) {
  if (const auto dtype = dtype_of(options.dtype)) return *dtype;
  for (const StoredTensor& tensor : checkpoint.distinct_weights()) {
    if (at::isFloatingType(tensor.dtype)) return tensor.dtype;
  }
  return at::kFloat;
}

int export_model(const cli::CheckpointCommandOptions& options) {
  if (options.output.ends_with(".bin")) {
    fail_as(ErrorKind::usage, "export: writes safetensors; for {} use convert --to bin",
            options.output);
  }
  const stored::AnyCheckpoint checkpoint = stored::open_any(options.path, {.tag = options.tag});
  if (!checkpoint.adapter.empty() && !options.output.ends_with(".safetensors")) {
    return export_adapter(options, checkpoint);
  }
  auto files = stored::export_weights(checkpoint, options.output,
                                      {.dtype = dtype_of(options.dtype),
                                       .max_file_bytes = options.max_file_bytes,
                                       .safetensors = true,
                                       .overwrites = options.overwrite})
                   .files;
  if (!checkpoint.config.empty() && base::is_folder(options.output)) {
    files.push_back(options.output + "/config.json");
    formats::replace_file(files.back(),
                          config_with_dtype(checkpoint.config, written_dtype(options, checkpoint)));
  }
  if (base::is_folder(options.output)) append(files, export_tokenizer(checkpoint, options.output));
  print_files(options, checkpoint, files);
  return 0;
}

std::string step_tag(const stored::AnyCheckpoint& checkpoint) {
  for (const auto& [name, value] : checkpoint.facts) {
    if (name == "step") return "global_step" + value;
  }
  return "global_step0";
}

// Both forms hold states by the names of their parameters.
void warn_of_numbered(const cli::CheckpointCommandOptions& options,
                      const stored::AnyCheckpoint& checkpoint) {
  if (checkpoint.numbered == nullptr) return;
  fmt::print(stderr,
             "warning: {}: its optimizer numbers its parameters instead of naming them; {} gets "
             "the weights without the optimizer's states\n",
             base::printable(checkpoint.path), base::printable(options.output));
}

int convert(const cli::CheckpointCommandOptions& options) {
  const bool is_bin = options.form == "bin";
  const bool is_folder_form = options.form == "dcp" || options.form == "deepspeed";
  const bool has_bin_name = options.output.ends_with(".bin");
  const bool has_safe_name = options.output.ends_with(".safetensors");
  if ((has_bin_name && !is_bin) || (has_safe_name && (is_bin || is_folder_form))) {
    fail_as(ErrorKind::usage, "convert: --to {} and the file {} contradict each other",
            options.form, options.output);
  }
  const stored::AnyCheckpoint checkpoint = stored::open_any(options.path, {.tag = options.tag});
  if (is_folder_form) warn_of_numbered(options, checkpoint);
  if (options.form == "deepspeed") {
    formats::check_is_free(options.output, options.overwrite);
    print_files(options, checkpoint,
                checkpoint::export_deepspeed(checkpoint, options.output, step_tag(checkpoint),
                                             options.overwrite));
    return 0;
  }
  const stored::ExportOptions how{.dtype = dtype_of(options.dtype),
                                  .max_file_bytes = options.max_file_bytes,
                                  .safetensors = !is_bin,
                                  .overwrites = options.overwrite};
  const stored::ExportResult result =
      options.form == "dcp"
          ? stored::export_weights(stored::flatten(checkpoint), options.output, how)
          : stored::export_weights(checkpoint, options.output, how);
  print_files(options, checkpoint, result.files);
  return 0;
}

// A program with its own loop may hold no lock: a run has ended only if its record says so.
bool has_ended(const std::string& run) {
  const std::string record = run + "/run.json";
  return base::is_file(record) && report::find_owner(run).state != report::OwnerState::live &&
         read_run_record(record).status != RunStatus::running;
}

// The run itself saves, after its current step.
int save(const cli::CheckpointCommandOptions& options) {
  formats::check_input(base::is_file(options.path + "/run.json"),
                       "{}: is not the folder of a run: it has no run.json", options.path);
  const std::string directory = options.path + "/checkpoints";
  checkpoint::ask_for_save(directory, options.name);
  const std::string folder = fmt::format("{}/{}", directory, options.name);
  if (options.json) {
    print_json({{"folder", folder}});
  } else {
    fmt::print("requested {}; {}\n", folder,
               has_ended(options.path)
                   ? "no run is active there: the next run with this --output writes it after its "
                     "first step"
                   : "the run writes it after its current step");
  }
  return 0;
}

int merge_lora(const cli::CheckpointCommandOptions& options) {
  merge_adapter(options.model, options.adapter, options.output,
                {.dtype = dtype_of(options.dtype),
                 .max_file_bytes = options.max_file_bytes,
                 .overwrites = options.overwrite});
  if (options.json) {
    print_json({{"folder", options.output}});
  } else {
    fmt::print("{}\n", options.output);
  }
  return 0;
}

int run(const cli::CheckpointCommandOptions& options) {
  switch (options.action) {
    case cli::CheckpointAction::inspect:
      return inspect(options);
    case cli::CheckpointAction::verify:
      return verify(options);
    case cli::CheckpointAction::to_fp32:
      return cli::run_to_fp32(options);
    case cli::CheckpointAction::export_model:
      return export_model(options);
    case cli::CheckpointAction::convert:
      return convert(options);
    case cli::CheckpointAction::save:
      return save(options);
    case cli::CheckpointAction::merge_lora:
      return merge_lora(options);
    case cli::CheckpointAction::diff:
      break;
  }
  return diff(options);
}

}  // namespace

int run_checkpoint(const cli::CheckpointArguments& arguments) {
  const int status = run(arguments.options());
  std::fflush(stdout);
  return status;
}

}  // namespace fullshard::worker
