// SPDX-License-Identifier: Apache-2.0
#include "fullshard/stored/any_checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <set>

#include "fullshard/formats/file_handle.h"
#include "fullshard/formats/folder.h"
#include "fullshard/formats/foreign/dcp_folder.h"
#include "fullshard/formats/foreign/deepspeed_folder.h"
#include "fullshard/formats/input_error.h"
#include "fullshard/formats/torch/torch_file.h"
#include "fullshard/formats/weights/flat_state_dict.h"
#include "fullshard/formats/weights/open_weights.h"
#include "fullshard/stored/beside_weights.h"
#include "fullshard/stored/manifest.h"
#include "fullshard/stored/manifest_source.h"
#include "fullshard/stored/model_record.h"
#include "fullshard/stored/side_files.h"

namespace fullshard::stored {
namespace {

constexpr int64_t kBlockNumel = int64_t{1} << 20;
constexpr const char* kFlatKind = "DCP safetensors";

// Reading verifies checksums if the source does so itself.
void read_through(const TensorSource& source) {
  for (const auto& tensor : source.tensors()) {
    const int64_t numel = tensor.numel();
    const int64_t most = std::min(numel, kBlockNumel);
    const ElementBuffer block(most, tensor.dtype);
    for (int64_t done = 0; done < numel; done += most) {
      source.read(tensor.name, done, block.all().part(0, std::min(most, numel - done)));
    }
  }
}

AnyCheckpoint open_own(const std::string& folder) {
  auto manifest = std::make_shared<const Manifest>(read_manifest(folder));
  check_files(*manifest, folder);
  AnyCheckpoint opened{.kind = "Fullshard", .path = folder};
  const ModelRecord record = record_in(manifest->progress.extra, folder);
  ModelRecord state_record = record;  // an optimizer holds a tied parameter once
  state_record.tied.clear();
  const auto source = [&](const std::string& state) {
    return under_file_names(std::make_unique<ManifestSource>(folder, manifest, state),
                            state.empty() ? record : state_record);
  };
  opened.config = record.config;
  opened.adapter = record.adapter;
  opened.weights = source("");
  for (const auto& [second, first] : record.tied) {
    if (opened.weights->find(second) != nullptr) opened.tied[second] = first;
  }
  std::set<std::string> states;
  for (const auto& tensor : manifest->tensors) {
    for (const auto& [name, values] : tensor.states) states.insert(name);
    const std::string first = file_name_of(tensor.names[0], record);
    for (size_t i = 1; i < tensor.names.size(); ++i) {
      const std::string second = file_name_of(tensor.names[i], record);
      if (!second.empty() && second != first) opened.tied[second] = first;
    }
  }
  for (const auto& name : states) opened.states.push_back({name, source(name)});
  opened.facts = {{"step", std::to_string(manifest->progress.step)},
                  {"ranks", std::to_string(manifest->num_ranks)},
                  {"strategy", manifest->strategy}};
  opened.num_steps = manifest->progress.step;
  opened.num_skipped = manifest->progress.num_skipped;
  if (manifest->optimizer) {
    opened.facts.emplace_back("optimizer", manifest->optimizer->name);
    opened.optimizer_steps = manifest->optimizer->num_steps;
  }
  opened.has_sums = true;
  if (!manifest->has_checksum()) {
    opened.without_sums.push_back(fmt::format("{}/{}", folder, kManifestName));
  }
  opened.check_sums = [folder, manifest, states] {
    read_through(ManifestSource(folder, manifest, ""));
    for (const auto& name : states) read_through(ManifestSource(folder, manifest, name));
    check_side_files(*manifest, folder);
    if (manifest->side_files.empty()) compare_side_weights(manifest, folder);
  };
  return opened;
}

// Files of torch.save; one may have been written without checksums.
void add_torch_sums(AnyCheckpoint& opened, std::vector<std::string> files,
                    const std::string& what) {
  const auto has_none = [](const std::string& file) {
    return !formats::TorchFile(file).has_checksums();
  };
  const auto rest = std::stable_partition(files.begin(), files.end(), std::not_fn(has_none));
  opened.without_sums.insert(opened.without_sums.end(), rest, files.end());
  files.erase(rest, files.end());
  opened.has_sums = opened.has_sums || !files.empty();
  opened.check_sums = [files = std::move(files), what] {
    for (const auto& file : files) formats::TorchFile(file).check_sums(what);
  };
}

AnyCheckpoint open_deepspeed(const FoundCheckpoint& found, bool with_frozen) {
  const formats::DeepSpeedFolder folder(found.path(), found.tag());
  AnyCheckpoint opened{.kind = fmt::format("DeepSpeed ZeRO-{}", folder.stage()),
                       .path = folder.folder()};
  opened.weights = folder.weights(with_frozen);
  opened.tied = folder.tied();
  for (const auto& name : folder.states()) opened.states.push_back({name, folder.state(name)});
  opened.facts = {{"step", std::to_string(folder.num_steps())},
                  {"ranks", std::to_string(folder.num_ranks())},
                  {"tag", folder.tag()},
                  {"DeepSpeed", folder.version().empty() ? "unknown" : folder.version()}};
  opened.num_steps = folder.num_steps();
  opened.num_skipped = folder.num_skipped();
  opened.optimizer_steps = folder.optimizer_steps();
  opened.scheduler_steps = folder.scheduler_steps();
  opened.loss_scale = folder.loss_scale();
  std::vector<std::string> files;
  for (const auto& name : formats::names_in(opened.path)) {
    if (name.ends_with("_states.pt")) files.push_back(fmt::format("{}/{}", opened.path, name));
  }
  add_torch_sums(opened, std::move(files), "checkpoint");
  return opened;
}

void check_item(const std::string& folder, const std::string& name, const formats::DcpItem& item) {
  const auto path = fmt::format("{}/{}", folder, item.file);
  formats::TorchFile(formats::FileHandle::open(path), item.offset, item.length)
      .check_sums(fmt::format("tensor '{}'", name));
}

// Objects (learning rates, step counts) are torch.save's too.
void check_dcp_sums(const std::string& folder) {
  const formats::DcpMetadata metadata = formats::read_dcp_metadata(folder);
  for (const auto& [name, item] : metadata.objects) check_item(folder, name, item);
  for (const auto& [name, tensor] : metadata.tensors) {
    for (const auto& chunk : tensor.chunks) check_item(folder, name, chunk.item);
  }
}

void add_states(AnyCheckpoint& opened, const formats::DcpFolder& folder) {
  for (const auto& name : folder.states()) opened.states.push_back({name, folder.state(name)});
  opened.optimizer_steps = folder.num_steps();
}

int64_t num_files(const formats::DcpFolder& folder) {
  std::set<std::string> files;
  for (const auto& [name, tensor] : folder.metadata().tensors) {
    for (const auto& chunk : tensor.chunks) files.insert(chunk.item.file);
  }
  return static_cast<int64_t>(files.size());
}

AnyCheckpoint open_dcp(const std::string& path) {
  const formats::DcpFolder folder(path);
  AnyCheckpoint opened{.kind = "torch.distributed.checkpoint", .path = path};
  opened.weights = folder.weights();
  add_states(opened, folder);
  opened.facts = {{"data files", std::to_string(num_files(folder))}};
  opened.has_sums = true;
  opened.check_sums = [path] { check_dcp_sums(path); };
  return opened;
}

void check_torch_sums(const std::vector<std::string>& files) {
  for (const auto& file : files) formats::TorchFile(file).check_sums("file");
}

AnyCheckpoint open_accelerate(const std::string& path) {
  const formats::AccelerateFolders folders = formats::find_accelerate_folders(path);
  AnyCheckpoint opened{.kind = "Accelerate FSDP", .path = path};
  if (!folders.model.empty()) opened.weights = formats::DcpFolder(folders.model).weights();
  if (!folders.optimizer.empty()) add_states(opened, formats::DcpFolder(folders.optimizer));
  add_trainer_state(opened, path);
  opened.has_sums = true;
  opened.check_sums = [folders, beside = add_saved_progress(opened, path)] {
    for (const auto& folder : {folders.model, folders.optimizer}) {
      if (!folder.empty()) check_dcp_sums(folder);
    }
    check_torch_sums(beside);
  };
  return opened;
}

// Weights, or weights with the optimizer's states as torch.distributed.checkpoint writes them as
// safetensors.
void add_tensors(AnyCheckpoint& opened, std::unique_ptr<TensorSource> source) {
  if (!formats::FlatStateDict::is_one(*source)) {
    opened.weights = std::move(source);
    return;
  }
  const formats::FlatStateDict dict(std::move(source));
  opened.kind = kFlatKind;
  opened.weights = dict.weights();
  for (const auto& name : dict.states()) opened.states.push_back({name, dict.state(name)});
  opened.optimizer_steps = dict.num_steps();
}

AnyCheckpoint open_plain(const std::string& path) {
  AnyCheckpoint opened{
      .kind = base::is_folder(path) ? kind_of_weights_folder(path) : "weights file", .path = path};
  auto source = open_tensors(path);
  std::set<std::string> files;
  for (const auto& tensor : source->tensors()) files.insert(tensor.file);
  add_tensors(opened, std::move(source));
  opened.facts = {{"data files", std::to_string(files.size())}};
  std::vector<std::string> summed;
  for (const auto& file : files) {
    (file.ends_with(".safetensors") ? opened.without_sums : summed).push_back(file);
  }
  if (base::is_folder(path) && opened.kind != kFlatKind) {
    add_trainer_state(opened, path);
    for (const auto& file : add_optimizer_file(opened, path)) summed.push_back(file);
    for (const auto& file : add_saved_progress(opened, path)) summed.push_back(file);
  }
  add_torch_sums(opened, std::move(summed), "file");
  return opened;
}

}  // namespace

std::vector<StoredTensor> AnyCheckpoint::distinct_weights() const {
  std::vector<StoredTensor> distinct;
  if (weights == nullptr) return distinct;
  for (const auto& tensor : weights->tensors()) {
    const auto second = tied.find(tensor.name);
    if (second != tied.end() && weights->find(second->second) != nullptr) continue;
    distinct.push_back(tensor);
  }
  return distinct;
}

AnyCheckpoint open_any(const FoundCheckpoint& found, bool with_frozen) {
  switch (found.kind()) {
    case CheckpointKind::own:
      return open_own(found.path());
    case CheckpointKind::deepspeed:
      return open_deepspeed(found, with_frozen);
    case CheckpointKind::dcp:
      return open_dcp(found.path());
    case CheckpointKind::accelerate:
      return open_accelerate(found.path());
    case CheckpointKind::weights:
      break;
  }
  return open_plain(found.path());
}

AnyCheckpoint open_any(const std::string& path, const AnyCheckpointOptions& options) {
  return open_any(FoundCheckpoint::find(path, options.tag), options.with_frozen);
}

}  // namespace fullshard::stored
