// SPDX-License-Identifier: Apache-2.0
#include "fullshard/worker/exported_tokenizer.h"

#include <optional>

#include "fullshard/base/error.h"
#include "fullshard/base/file_kind.h"
#include "fullshard/base/hub_cache.h"
#include "fullshard/base/printable.h"
#include "fullshard/base/standard_streams.h"
#include "fullshard/formats/folder.h"
#include "fullshard/report/records/run_record.h"
#include "fullshard/train/written_folder.h"

namespace fullshard::worker {
namespace {

// DIR of DIR/checkpoints/step-000100.
std::string run_of(const std::string& checkpoint) {
  const std::string checkpoints = formats::folder_part(checkpoint);
  return formats::name_part(checkpoints) == "checkpoints" ? formats::folder_part(checkpoints) : "";
}

std::optional<RunRecord> record_of_run(const std::string& run) {
  try {
    if (!run.empty()) return read_run_record(run + "/run.json");
  } catch (const Error&) {  // a missing or damaged record does not prevent the export of weights
  }
  return std::nullopt;
}

// The value of `--flag VALUE` or `--flag=VALUE`.
std::string value_in(const std::vector<std::string>& command, const std::string& flag) {
  for (size_t i = 0; i < command.size(); ++i) {
    if (command[i].starts_with(flag + "=")) return command[i].substr(flag.size() + 1);
    if (command[i] == flag && i + 1 < command.size()) return command[i + 1];
  }
  return "";
}

struct Sources {
  std::vector<std::string> folders{};
  std::string named{};    // with --tokenizer: a folder, a file, or "bytes"
  std::string missing{};  // where the run had one; empty: it had none, or that is unknown
};

Sources sources_of(const std::string& checkpoint) {
  Sources sources{.folders = {checkpoint}};
  const std::string run = run_of(checkpoint);
  const auto record = record_of_run(run);
  if (!record) return sources;
  for (const char* name : {"/model", "/adapter", "/best"}) sources.folders.push_back(run + name);
  sources.named = value_in(record->command, "--tokenizer");
  const std::string model = record->model.name;
  const bool is_gone = model.find('/') != std::string::npos && !base::is_folder(model);
  sources.missing = !sources.named.empty() ? sources.named : is_gone ? model : "";
  if (sources.named.empty()) sources.folders.push_back(base::path_or_cached_model(model));
  return sources;
}

}  // namespace

std::vector<std::string> export_tokenizer(const stored::AnyCheckpoint& checkpoint,
                                          const std::string& folder) {
  const Sources sources = sources_of(checkpoint.path);
  for (const auto& from : sources.folders) {
    if (train::has_tokenizer(from)) return train::copy_tokenizer(from, folder);
  }
  std::vector<std::string> copied;
  if (!sources.named.empty()) {
    copied = train::copy_tokenizer(base::path_or_cached_model(sources.named), folder);
  }
  if (copied.empty() && !sources.missing.empty()) {
    base::say(fmt::format("note: {}: has no tokenizer: that of {} is missing; copy its files\n",
                          base::printable(folder), base::printable(sources.missing)));
  }
  return copied;
}

}  // namespace fullshard::worker
