// SPDX-License-Identifier: Apache-2.0
#include "fullshard/stored/fp32_export.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "fullshard/base/error.h"
#include "fullshard/formats/folder.h"
#include "fullshard/formats/free_place.h"
#include "fullshard/formats/input_error.h"
#include "fullshard/formats/replace_file.h"
#include "fullshard/formats/weights/source_sums.h"
#include "fullshard/formats/weights/split_files.h"
#include "fullshard/stored/blocks/direct_file.h"
#include "fullshard/stored/blocks/work_items.h"
#include "fullshard/stored/streamed_file.h"
#include "fullshard/stored/weights_layout.h"

namespace fullshard::stored {
namespace {

constexpr std::string_view kSafetensors = ".safetensors";
constexpr std::string_view kTorch = ".bin";

std::vector<TensorPlan> plan_tensors(const AnyCheckpoint& checkpoint,
                                     const ExportOptions& options) {
  std::vector<TensorPlan> plans;
  for (const auto& tensor : checkpoint.distinct_weights()) {
    const bool is_cast = options.dtype.has_value() && at::isFloatingType(tensor.dtype) &&
                         !checkpoint.exact.contains(tensor.name);
    plans.push_back({tensor.name, tensor.shape, is_cast ? *options.dtype : tensor.dtype});
  }
  return plans;
}

FurtherNames further_names(const AnyCheckpoint& checkpoint) {
  FurtherNames others;
  for (const auto& [name, same] : checkpoint.tied) {
    if (checkpoint.weights->find(name) != nullptr) others[same].push_back(name);
  }
  return others;
}

// "model-00001-of-00002.safetensors" is "pytorch_model-00001-of-00002.bin" there.
std::string torch_name(std::string name) {
  name.resize(name.size() - kSafetensors.size());
  return "pytorch_" + name + std::string(kTorch);
}

bool are_one(const std::string& path, const std::string& other) {
  struct stat facts = {}, others = {};
  return ::stat(path.c_str(), &facts) == 0 && ::stat(other.c_str(), &others) == 0 &&
         facts.st_dev == others.st_dev && facts.st_ino == others.st_ino;
}

// Writing over the weights that are read would lose them, or their precision.
void refuse_own_place(const AnyCheckpoint& checkpoint, const std::string& out) {
  const bool is_sharded =
      checkpoint.kind == "Fullshard" || checkpoint.kind.starts_with("DeepSpeed") ||
      checkpoint.kind.starts_with("torch.distributed") || checkpoint.kind.starts_with("Accelerate");
  const size_t slash = out.rfind('/');
  const std::string above = slash == std::string::npos ? "." : out.substr(0, slash + 1);
  const bool is_file = out.ends_with(kTorch) || out.ends_with(kSafetensors);
  const bool is_own_file = is_file && are_one(above, checkpoint.path) && are_one(out, out);
  if (is_sharded || !(are_one(out, checkpoint.path) || is_own_file)) return;
  fail_as(ErrorKind::usage, "{}: the weights are read from there; choose another destination", out);
}

class Export {
 public:
  Export(const AnyCheckpoint& checkpoint, const std::string& out, const ExportOptions& options)
      : checkpoint_(checkpoint), options_(options), others_(further_names(checkpoint)) {
    refuse_own_place(checkpoint, out);
    formats::check_is_free(out, options.overwrites);
    const auto plans = plan_tensors(checkpoint, options);
    formats::check_input(!plans.empty(), "{}: holds no weights", checkpoint.path);
    is_file_ = out.ends_with(kTorch) || out.ends_with(kSafetensors);
    is_safetensors_ = is_file_ ? out.ends_with(kSafetensors) : options.safetensors;
    folder_ = is_file_ ? formats::folder_part(out) : out;
    split_ = formats::split_into_files(plans, is_file_ ? INT64_MAX : options.max_file_bytes);
    if (is_file_) split_.files[0].name = formats::name_part(out);
    if (!is_file_ && !is_safetensors_) {
      for (auto& file : split_.files) file.name = torch_name(file.name);
    }
  }

  ExportResult run() {
    made_.emplace(folder_).make();
    for (const auto& file : split_.files) open(file);
    stream();
    formats::check_sums_of(*checkpoint_.weights, names());
    for (const auto& file : files_) file->finish();
    if (split_.needs_index()) write_index();
    if (!is_file_) remove_stale();
    result_.bytes = split_.total_bytes;
    return std::move(result_);
  }

 private:
  std::string path_of(const std::string& name) const { return fmt::format("{}/{}", folder_, name); }

  void open(const formats::FilePlan& file) {
    const std::string path = path_of(file.name);
    formats::check_input(!base::is_folder(path), "{}: is a folder", path);
    ::unlink((path + ".part").c_str());  // of a run that was killed
    files_.push_back(std::make_unique<StreamedFile>(
        path, is_safetensors_ ? safetensors_layout(file.tensors, path)
                              : torch_layout(file.tensors, others_)));
    for (int64_t block = 0; block < files_.back()->num_blocks(); ++block) {
      work_.push_back({files_.back().get(), block});
    }
    result_.num_tensors += static_cast<int64_t>(file.tensors.size());
    result_.files.push_back(path);
  }

  // Several blocks are read and written at a time.
  void stream() {
    const int num_threads = static_cast<int>(
        std::min(static_cast<int64_t>(options_.num_threads), static_cast<int64_t>(work_.size())));
    std::vector<disk::DirectBuffer> buffers(static_cast<size_t>(num_threads));
    result_.block_bytes = num_threads * kStreamBytes;
    do_items(static_cast<int64_t>(work_.size()), num_threads, [&](int worker, int64_t i) {
      const Work& work = work_[static_cast<size_t>(i)];
      work.file->write_block(work.block, *checkpoint_.weights,
                             buffers[static_cast<size_t>(worker)]);
    });
  }

  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& file : split_.files) {
      for (const auto& tensor : file.tensors) names.push_back(tensor.name);
    }
    return names;
  }

  struct Work {
    StreamedFile* file;
    int64_t block;
  };

  std::string index_name() const {
    return is_safetensors_ ? formats::kSafetensorsIndex : "pytorch_model.bin.index.json";
  }

  void write_index() {
    formats::SplitFiles named = split_;
    for (auto& file : named.files) {
      for (size_t i = 0, count = file.tensors.size(); i < count && !is_safetensors_; ++i) {
        const auto more = others_.find(file.tensors[i].name);
        if (more == others_.end()) continue;
        for (const auto& name : more->second) file.tensors.push_back({name, {}, at::kFloat});
      }
    }
    const std::string path = path_of(index_name());
    formats::replace_file(path, named.index_json());
    result_.files.push_back(path);
  }

  // A reader would take the weights of an earlier export for these: several files if this export
  // is one file, and the other way round.
  void remove_stale() const {
    std::set<std::string> ours;
    for (const auto& file : result_.files) ours.emplace(formats::name_part(file));
    const std::string_view begin = is_safetensors_ ? "model" : "pytorch_model";
    const std::string_view end = is_safetensors_ ? kSafetensors : kTorch;
    for (const auto& name : formats::names_in(folder_)) {
      const bool is_part = name.starts_with(fmt::format("{}-", begin)) && name.ends_with(end) &&
                           name.find("-of-") != std::string::npos;
      const bool is_whole = name == fmt::format("{}{}", begin, end) || name == index_name();
      if ((is_part || is_whole) && !ours.contains(name)) ::unlink(path_of(name).c_str());
    }
  }

  const AnyCheckpoint& checkpoint_;
  ExportOptions options_;
  FurtherNames others_;
  bool is_file_ = false;
  bool is_safetensors_ = false;
  std::string folder_;
  formats::SplitFiles split_;
  std::optional<formats::NewFolders> made_;
  std::vector<std::unique_ptr<StreamedFile>> files_;
  std::vector<Work> work_;
  ExportResult result_;
};

}  // namespace

ExportResult export_weights(const AnyCheckpoint& checkpoint, const std::string& out,
                            const ExportOptions& options) {
  formats::check_input(checkpoint.weights != nullptr,
                       "{}: holds the states of an optimizer and no weights", checkpoint.path);
  return Export(checkpoint, out, options).run();
}

}  // namespace fullshard::stored
