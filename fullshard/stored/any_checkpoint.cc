#include "fullshard/stored/any_checkpoint.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <set>

#include "fullshard/formats/dcp_folder.h"
#include "fullshard/formats/deepspeed_folder.h"
#include "fullshard/formats/file_handle.h"
#include "fullshard/formats/folder.h"
#include "fullshard/formats/input_error.h"
#include "fullshard/formats/open_weights.h"
#include "fullshard/formats/torch_file.h"
#include "fullshard/stored/beside_weights.h"
#include "fullshard/stored/last_checkpoint.h"
#include "fullshard/stored/manifest.h"
#include "fullshard/stored/manifest_source.h"
#include "fullshard/stored/model_record.h"

namespace fullshard {
namespace {

constexpr int64_t kBlockNumel = int64_t{1} << 20;

// Reading compares checksums where the source does so itself.
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
  const auto source = [&](const std::string& state) {
    return under_file_names(std::make_unique<ManifestSource>(folder, manifest, state), record);
  };
  opened.config = record.config;
  opened.weights = source("");
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
  };
  return opened;
}

// Files of torch.save; one may have been written without checksums.
void add_torch_sums(AnyCheckpoint& opened, std::vector<std::string> files,
                    const std::string& what) {
  const auto has_none = [](const std::string& file) { return !TorchFile(file).has_checksums(); };
  const auto rest = std::stable_partition(files.begin(), files.end(), std::not_fn(has_none));
  opened.without_sums.insert(opened.without_sums.end(), rest, files.end());
  files.erase(rest, files.end());
  opened.has_sums = opened.has_sums || !files.empty();
  opened.check_sums = [files = std::move(files), what] {
    for (const auto& file : files) TorchFile(file).check_sums(what);
  };
}

AnyCheckpoint open_deepspeed(const std::string& path, const AnyCheckpointOptions& options) {
  const DeepSpeedFolder folder(path, options.tag);
  AnyCheckpoint opened{.kind = fmt::format("DeepSpeed ZeRO-{}", folder.stage()),
                       .path = folder.folder()};
  opened.weights = folder.weights(options.with_frozen);
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
  for (const auto& name : names_in(opened.path)) {
    if (name.ends_with("_states.pt")) files.push_back(fmt::format("{}/{}", opened.path, name));
  }
  add_torch_sums(opened, std::move(files), "checkpoint");
  return opened;
}

void check_item(const std::string& folder, const std::string& name, const DcpItem& item) {
  const auto path = fmt::format("{}/{}", folder, item.file);
  TorchFile(FileHandle::open(path), item.offset, item.length)
      .check_sums(fmt::format("tensor '{}'", name));
}

// Objects (learning rates, step counts) are torch.save's too.
void check_dcp_sums(const std::string& folder) {
  const DcpMetadata metadata = read_dcp_metadata(folder);
  for (const auto& [name, item] : metadata.objects) check_item(folder, name, item);
  for (const auto& [name, tensor] : metadata.tensors) {
    for (const auto& chunk : tensor.chunks) check_item(folder, name, chunk.item);
  }
}

void add_states(AnyCheckpoint& opened, const DcpFolder& folder) {
  for (const auto& name : folder.states()) opened.states.push_back({name, folder.state(name)});
  opened.optimizer_steps = folder.num_steps();
}

int64_t num_files(const DcpFolder& folder) {
  std::set<std::string> files;
  for (const auto& [name, tensor] : folder.metadata().tensors) {
    for (const auto& chunk : tensor.chunks) files.insert(chunk.item.file);
  }
  return static_cast<int64_t>(files.size());
}

AnyCheckpoint open_dcp(const std::string& path) {
  const DcpFolder folder(path);
  AnyCheckpoint opened{.kind = "torch.distributed.checkpoint", .path = path};
  opened.weights = folder.weights();
  add_states(opened, folder);
  opened.facts = {{"data files", std::to_string(num_files(folder))}};
  opened.has_sums = true;
  opened.check_sums = [path] { check_dcp_sums(path); };
  return opened;
}

void check_torch_sums(const std::vector<std::string>& files) {
  for (const auto& file : files) TorchFile(file).check_sums("file");
}

AnyCheckpoint open_accelerate(const std::string& path, const AccelerateFolders& folders) {
  AnyCheckpoint opened{.kind = "Accelerate FSDP", .path = path};
  if (!folders.model.empty()) opened.weights = DcpFolder(folders.model).weights();
  if (!folders.optimizer.empty()) add_states(opened, DcpFolder(folders.optimizer));
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

AnyCheckpoint open_plain(const std::string& path) {
  AnyCheckpoint opened{.kind = is_folder(path) ? kind_of_weights_folder(path) : "weights file",
                       .path = path};
  opened.weights = open_weights(path);
  std::set<std::string> files;
  for (const auto& tensor : opened.weights->tensors()) files.insert(tensor.file);
  opened.facts = {{"data files", std::to_string(files.size())}};
  std::vector<std::string> summed;
  for (const auto& file : files) {
    (file.ends_with(".safetensors") ? opened.without_sums : summed).push_back(file);
  }
  if (is_folder(path)) {
    add_trainer_state(opened, path);
    for (const auto& file : add_optimizer_file(opened, path)) summed.push_back(file);
    for (const auto& file : add_saved_progress(opened, path)) summed.push_back(file);
  }
  add_torch_sums(opened, std::move(summed), "file");
  return opened;
}

bool is_own(const std::string& folder) {
  return is_file(fmt::format("{}/{}", folder, kManifestName));
}

// Our own names of files, and nothing that says what is in them.
void check_has_manifest(const std::string& folder) {
  check_input(!is_file(folder + "/weights-00000.bin"),
              "{}: has no {}, without which nobody knows what its files hold; it is no complete "
              "checkpoint: copy it again or use another",
              folder, kManifestName);
}

}  // namespace

std::string find_own_checkpoint(const std::string& path) {
  if (is_own(path)) return path;
  for (const auto& folder : {path, path + "/checkpoints"}) {
    const LastCheckpoint last = last_checkpoint(folder);
    if (!last.folder.empty()) return last.folder;
  }
  return "";
}

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

AnyCheckpoint open_any(const std::string& path, const AnyCheckpointOptions& options) {
  check_input(is_file(path) || is_folder(path), "{}: is not there", path);
  if (is_file(path)) return open_plain(path);
  const std::string named = fmt::format("{}/{}", path, options.tag);
  if (!options.tag.empty() && is_plain_name(options.tag) && is_own(named)) return open_own(named);
  if (is_own(path)) return open_own(path);
  if (is_deepspeed_folder(path)) return open_deepspeed(path, options);
  check_input(options.tag.empty(), "{}: has no checkpoint '{}'", path, options.tag);
  if (is_dcp_folder(path)) return open_dcp(path);
  const AccelerateFolders folders = find_accelerate_folders(path);
  if (!folders.model.empty() || !folders.optimizer.empty()) return open_accelerate(path, folders);
  const std::string own = find_own_checkpoint(path);
  if (!own.empty()) return open_own(own);
  check_has_manifest(path);
  const LastCheckpoint last = last_checkpoint(path);
  check_input(last.skipped.empty(), "{}: has no complete checkpoint: {}", path,
              fmt::join(last.skipped, "; "));
  return open_plain(path);
}

}  // namespace fullshard
