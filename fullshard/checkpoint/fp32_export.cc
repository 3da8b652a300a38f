#include "fullshard/checkpoint/fp32_export.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string_view>
#include <thread>
#include <utility>

#include "fullshard/base/bytes.h"
#include "fullshard/formats/element_type.h"
#include "fullshard/formats/file_handle.h"
#include "fullshard/formats/folder.h"
#include "fullshard/formats/input_error.h"
#include "fullshard/formats/safetensors_writer.h"
#include "fullshard/formats/split_files.h"
#include "fullshard/formats/torch_writer.h"

namespace fullshard {
namespace {

constexpr int64_t kBlockBytes = 4 * kMiB;
constexpr std::string_view kSafetensors = ".safetensors";
constexpr std::string_view kTorch = ".bin";

// One file while it is written. Ranges of a tensor come in order; several threads write, each
// tensor by one of them.
class WeightsFile {
 public:
  virtual ~WeightsFile() = default;
  virtual void write_next(const std::string& tensor, int64_t begin, const at::Tensor& values) = 0;
  virtual void finish() = 0;
};

class SafetensorsOutput : public WeightsFile {
 public:
  SafetensorsOutput(const std::string& path, const std::vector<TensorPlan>& tensors)
      : writer_(path, tensors) {}
  void write_next(const std::string& tensor, int64_t begin, const at::Tensor& values) override {
    writer_.write_range(tensor, begin, values);
  }
  void finish() override { writer_.finish(); }

 private:
  SafetensorsWriter writer_;
};

using Names = std::map<std::string, std::vector<std::string>>;  // of a tensor: its further ones

class TorchOutput : public WeightsFile {
 public:
  TorchOutput(const std::string& path, const std::vector<TensorPlan>& tensors, const Names& others)
      : writer_(path) {
    writer_.pickle().begin_dict();
    for (const auto& tensor : tensors) {
      const size_t storage = writer_.add_storage(tensor.dtype, *checked_numel(tensor.shape));
      storages_[tensor.name] = storage;
      put(tensor.name, storage, tensor);
      const auto more = others.find(tensor.name);
      if (more == others.end()) continue;
      for (const auto& name : more->second) put(name, storage, tensor);
    }
    writer_.pickle().end_dict();
    writer_.begin();
  }
  void write_next(const std::string& tensor, int64_t, const at::Tensor& values) override {
    writer_.write_next(storages_.at(tensor), values);
  }
  void finish() override { writer_.finish(); }

 private:
  void put(const std::string& name, size_t storage, const TensorPlan& tensor) {
    writer_.pickle().put(name);
    writer_.put_tensor(storage, tensor.shape);
  }

  TorchWriter writer_;
  std::map<std::string, size_t> storages_;
};

std::vector<TensorPlan> plan_tensors(const AnyCheckpoint& checkpoint,
                                     const ExportOptions& options) {
  std::vector<TensorPlan> plans;
  for (const auto& tensor : checkpoint.distinct_weights()) {
    const bool is_cast = options.dtype.has_value() && at::isFloatingType(tensor.dtype);
    plans.push_back({tensor.name, tensor.shape, is_cast ? *options.dtype : tensor.dtype});
  }
  return plans;
}

Names further_names(const AnyCheckpoint& checkpoint) {
  Names others;
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

// Runs work(0), ..., work(count - 1) on several threads; the first error is thrown here.
void for_each_index(size_t count, int num_threads, const std::function<void(size_t)>& work) {
  std::atomic<size_t> next = 0;
  std::exception_ptr problem;
  std::mutex mutex;
  const auto loop = [&] {
    const at::NoGradGuard no_grad;
    for (size_t i = next++; i < count; i = next++) {
      try {
        work(i);
      } catch (...) {
        const std::scoped_lock lock(mutex);
        if (!problem) problem = std::current_exception();
        next = count;
      }
    }
  };
  std::vector<std::thread> threads;
  for (int i = 1; i < num_threads && static_cast<size_t>(i) < count; ++i)
    threads.emplace_back(loop);
  loop();
  for (auto& thread : threads) thread.join();
  if (problem) std::rethrow_exception(problem);
}

class Export {
 public:
  Export(const AnyCheckpoint& checkpoint, const std::string& out, const ExportOptions& options)
      : checkpoint_(checkpoint), options_(options), others_(further_names(checkpoint)) {
    const auto plans = plan_tensors(checkpoint, options);
    check_input(!plans.empty(), "{}: holds no weights", checkpoint.path);
    is_file_ = out.ends_with(kTorch) || out.ends_with(kSafetensors);
    is_safetensors_ = is_file_ ? out.ends_with(kSafetensors) : options.safetensors;
    folder_ = is_file_ ? folder_part(out) : out;
    split_ = split_into_files(plans, is_file_ ? INT64_MAX : options.max_file_bytes);
    if (is_file_) split_.files[0].name = name_part(out);
    if (!is_file_ && !is_safetensors_) {
      for (auto& file : split_.files) file.name = torch_name(file.name);
    }
  }

  ExportResult run() {
    make_folder();
    for (const auto& file : split_.files) open(file);
    stream();
    for (const auto& file : files_) file->finish();
    if (split_.needs_index()) write_index();
    if (!is_file_) remove_stale();
    result_.num_tensors = static_cast<int64_t>(work_.size());
    result_.bytes = split_.total_bytes;
    result_.block_bytes = most_held_;
    return std::move(result_);
  }

 private:
  std::string path_of(const std::string& name) const { return fmt::format("{}/{}", folder_, name); }

  void make_folder() const {
    if (is_folder(folder_)) return;
    check_input(::mkdir(folder_.c_str(), 0777) == 0, "{}: cannot be made: {}", folder_,
                std::strerror(errno));
  }

  void open(const FilePlan& file) {
    const std::string path = path_of(file.name);
    check_input(!is_folder(path), "{}: is a folder", path);
    ::unlink((path + ".part").c_str());  // of a run that was killed
    if (is_safetensors_) {
      files_.push_back(std::make_unique<SafetensorsOutput>(path, file.tensors));
    } else {
      files_.push_back(std::make_unique<TorchOutput>(path, file.tensors, others_));
    }
    for (const auto& tensor : file.tensors) work_.push_back({&tensor, files_.back().get()});
    result_.files.push_back(path);
  }

  // The largest first: the threads end at about the same time.
  void stream() {
    std::ranges::stable_sort(work_, std::greater(),
                             [](const Work& work) { return *checked_numel(work.tensor->shape); });
    for_each_index(work_.size(), options_.num_threads, [&](size_t i) { copy(work_[i]); });
  }

  struct Work {
    const TensorPlan* tensor;
    WeightsFile* file;
  };

  void copy(const Work& work) {
    const TensorPlan& tensor = *work.tensor;
    const int64_t numel = *checked_numel(tensor.shape);
    const auto size = static_cast<int64_t>(c10::elementSize(tensor.dtype));
    const int64_t most = std::min(numel, kBlockBytes / size);
    const at::Tensor block = at::empty({most}, at::TensorOptions().dtype(tensor.dtype));
    hold(most * size);
    for (int64_t done = 0; done < numel; done += most) {
      const at::Tensor part = block.narrow(0, 0, std::min(most, numel - done));
      checkpoint_.weights->read(tensor.name, done, part);
      work.file->write_next(tensor.name, done, part);
    }
    hold(-most * size);
  }

  void hold(int64_t bytes) {
    const std::scoped_lock lock(mutex_);
    held_ += bytes;
    most_held_ = std::max(most_held_, held_);
  }

  std::string index_name() const {
    return is_safetensors_ ? kSafetensorsIndex : "pytorch_model.bin.index.json";
  }

  void write_index() {
    SplitFiles named = split_;
    for (auto& file : named.files) {
      for (size_t i = 0, count = file.tensors.size(); i < count && !is_safetensors_; ++i) {
        const auto more = others_.find(file.tensors[i].name);
        if (more == others_.end()) continue;
        for (const auto& name : more->second) file.tensors.push_back({name, {}, at::kFloat});
      }
    }
    const std::string text = named.index_json();
    const std::string path = path_of(index_name());
    ::unlink((path + ".part").c_str());
    {
      FileHandle file = FileHandle::create(path + ".part");
      file.write_at(0, text.data(), static_cast<int64_t>(text.size()));
      file.sync();
    }
    check_input(std::rename((path + ".part").c_str(), path.c_str()) == 0,
                "{}: cannot be given its name: {}", path, std::strerror(errno));
    sync_folder_of(path);
    result_.files.push_back(path);
  }

  // A reader would take the weights of an earlier export for ours: those of several files if ours
  // is one, and the other way round.
  void remove_stale() const {
    std::set<std::string> ours;
    for (const auto& file : result_.files) ours.emplace(name_part(file));
    const std::string_view begin = is_safetensors_ ? "model" : "pytorch_model";
    const std::string_view end = is_safetensors_ ? kSafetensors : kTorch;
    for (const auto& name : names_in(folder_)) {
      const bool is_part = name.starts_with(fmt::format("{}-", begin)) && name.ends_with(end) &&
                           name.find("-of-") != std::string::npos;
      const bool is_whole = name == fmt::format("{}{}", begin, end) || name == index_name();
      if ((is_part || is_whole) && !ours.contains(name)) ::unlink(path_of(name).c_str());
    }
  }

  const AnyCheckpoint& checkpoint_;
  ExportOptions options_;
  Names others_;
  bool is_file_ = false;
  bool is_safetensors_ = false;
  std::string folder_;
  SplitFiles split_;
  std::vector<std::unique_ptr<WeightsFile>> files_;
  std::vector<Work> work_;
  std::mutex mutex_;
  int64_t held_ = 0;
  int64_t most_held_ = 0;
  ExportResult result_;
};

}  // namespace

ExportResult export_weights(const AnyCheckpoint& checkpoint, const std::string& out,
                            const ExportOptions& options) {
  check_input(checkpoint.weights != nullptr, "{}: holds the states of an optimizer and no weights",
              checkpoint.path);
  return Export(checkpoint, out, options).run();
}

}  // namespace fullshard
