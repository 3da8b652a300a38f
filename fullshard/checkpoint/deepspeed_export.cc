// SPDX-License-Identifier: Apache-2.0
#include "fullshard/checkpoint/deepspeed_export.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "fullshard/base/bytes.h"
#include "fullshard/base/folder_names.h"
#include "fullshard/formats/file_handle.h"
#include "fullshard/formats/folder.h"
#include "fullshard/formats/free_place.h"
#include "fullshard/formats/input_error.h"
#include "fullshard/formats/replace_file.h"
#include "fullshard/formats/torch/torch_writer.h"
#include "fullshard/formats/weights/source_sums.h"

namespace fullshard::checkpoint {
namespace {

constexpr int64_t kBlockNumel = kMiB;
constexpr const char* kVersion = "0.19.8";  // whose layout this is
constexpr int64_t kStage = 2;

// FOLDER.part until all of it is written; what is not finished goes.
class UnfinishedFolder {
 public:
  explicit UnfinishedFolder(std::string folder)
      : folder_(std::move(folder)), part_(folder_ + ".part") {
    base::remove_flat_folder(part_);  // of a command that was killed
    formats::check_system(::mkdir(part_.c_str(), 0777) == 0, "{}: cannot be made", part_);
  }
  ~UnfinishedFolder() { base::remove_flat_folder(part_); }
  UnfinishedFolder(const UnfinishedFolder&) = delete;
  UnfinishedFolder& operator=(const UnfinishedFolder&) = delete;

  const std::string& part() const { return part_; }
  // What had the name until now goes with the object.
  void finish() const {
    base::exchange_names(part_, folder_);
    formats::sync_folder_of(folder_);
  }

 private:
  std::string folder_;
  std::string part_;
};

void stream(const TensorSource& source, const StoredTensor& tensor, at::ScalarType dtype,
            formats::TorchWriter& writer, size_t storage) {
  const int64_t numel = tensor.numel();
  const int64_t most = std::min(numel, kBlockNumel);
  const at::Tensor block = at::empty({most}, at::TensorOptions().dtype(dtype));
  for (int64_t done = 0; done < numel; done += most) {
    const at::Tensor part = block.narrow(0, 0, std::min(most, numel - done));
    source.read(tensor.name, done, part);
    writer.write_next(storage, part);
  }
}

class DeepSpeedExport {
 public:
  DeepSpeedExport(const stored::AnyCheckpoint& checkpoint, std::string folder)
      : checkpoint_(checkpoint), folder_(std::move(folder)) {
    for (const auto& tensor : checkpoint.distinct_weights()) {
      if (!at::isFloatingType(tensor.dtype)) {
        buffers_.push_back(tensor);
      } else if (is_trained(tensor.name)) {
        trained_.push_back(tensor);
        numel_ += tensor.numel();
      } else {
        frozen_.push_back(tensor);
      }
    }
  }

  std::string write_model() const {
    const std::string path = folder_ + "/mp_rank_00_model_states.pt";
    formats::TorchWriter writer(path);
    formats::PickleWriter& pickle = writer.pickle();
    pickle.begin_dict();
    put_tensors(writer, "module", buffers_);
    pickle.put("buffer_names");
    pickle.begin_list();
    for (const auto& tensor : buffers_) pickle.put(tensor.name);
    pickle.end_list();
    pickle.put("param_shapes");
    pickle.begin_list();
    put_shapes(pickle, trained_);
    pickle.end_list();
    pickle.put("frozen_param_shapes");
    put_shapes(pickle, frozen_);
    put_tensors(writer, "frozen_param_fragments", frozen_);
    pickle.put("shared_params");
    pickle.begin_dict();
    for (const auto& [name, same] : checkpoint_.tied) {
      pickle.put(name);
      pickle.put(same);
    }
    pickle.end_dict();
    put_facts(pickle);
    pickle.end_dict();
    writer.begin();
    size_t storage = 0;
    for (const auto& tensor : buffers_) {
      stream(*checkpoint_.weights, tensor, tensor.dtype, writer, storage++);
    }
    for (const auto& tensor : frozen_) {
      stream(*checkpoint_.weights, tensor, tensor.dtype, writer, storage++);
    }
    formats::check_sums_of(*checkpoint_.weights, names_of(buffers_));
    formats::check_sums_of(*checkpoint_.weights, names_of(frozen_));
    writer.finish();
    return path;
  }

  std::string write_optimizer() const {
    const std::string path = folder_ + "/zero_pp_rank_0_mp_rank_00_optim_states.pt";
    formats::TorchWriter writer(path);
    formats::PickleWriter& pickle = writer.pickle();
    pickle.begin_dict();
    pickle.put("optimizer_state_dict");
    pickle.begin_dict();
    pickle.put("zero_stage");
    pickle.put(kStage);
    put_list_of_one(pickle, "partition_count", 1);
    put_list_of_one(pickle, "group_paddings", 0);
    pickle.put("single_partition_of_fp32_groups");
    pickle.begin_list();
    writer.put_tensor(writer.add_storage(at::kFloat, numel_), {numel_});
    pickle.end_list();
    put_states(writer);
    pickle.end_dict();
    pickle.put("ds_version");
    pickle.put(kVersion);
    pickle.end_dict();
    writer.begin();
    for (const auto& tensor : trained_) {
      stream(*checkpoint_.weights, tensor, at::kFloat, writer, 0);
    }
    for (size_t i = 0; i < checkpoint_.states.size(); ++i) {
      const TensorSource& state = *checkpoint_.states[i].tensors;
      for (const auto& tensor : trained_) stream(state, tensor, at::kFloat, writer, i + 1);
      formats::check_sums_of(state, names_of(trained_));
    }
    formats::check_sums_of(*checkpoint_.weights, names_of(trained_));
    writer.finish();
    return path;
  }

 private:
  // Flat groups hold a value of every state for every parameter.
  bool is_trained(const std::string& name) const {
    return std::ranges::all_of(checkpoint_.states, [&](const auto& state) {
      return state.tensors->find(name) != nullptr;
    });
  }

  static std::vector<std::string> names_of(const std::vector<StoredTensor>& tensors) {
    std::vector<std::string> names;
    for (const auto& tensor : tensors) names.push_back(tensor.name);
    return names;
  }

  static void put_shapes(formats::PickleWriter& pickle, const std::vector<StoredTensor>& tensors) {
    pickle.begin_dict();
    for (const auto& tensor : tensors) {
      pickle.put(tensor.name);
      pickle.put_size(tensor.shape);
    }
    pickle.end_dict();
  }

  static void put_tensors(formats::TorchWriter& writer, const char* key,
                          const std::vector<StoredTensor>& tensors) {
    writer.pickle().put(key);
    writer.pickle().begin_dict();
    for (const auto& tensor : tensors) {
      writer.pickle().put(tensor.name);
      writer.put_tensor(writer.add_storage(tensor.dtype, tensor.numel()), tensor.shape);
    }
    writer.pickle().end_dict();
  }

  static void put_list_of_one(formats::PickleWriter& pickle, const char* key, int64_t number) {
    pickle.put(key);
    pickle.begin_list();
    pickle.put(number);
    pickle.end_list();
  }

  void put_facts(formats::PickleWriter& pickle) const {
    pickle.put("dp_world_size");
    pickle.put(int64_t{1});
    pickle.put("mp_world_size");
    pickle.put(int64_t{1});
    for (const auto& [name, value] : checkpoint_.facts) {
      if (name != "step") continue;
      pickle.put("global_steps");
      pickle.put(static_cast<int64_t>(std::stoll(value)));
    }
    pickle.put("ds_version");
    pickle.put(kVersion);
  }

  void put_states(formats::TorchWriter& writer) const {
    formats::PickleWriter& pickle = writer.pickle();
    pickle.put("base_optimizer_state");
    pickle.begin_dict();
    pickle.put("state");
    pickle.begin_dict();
    if (!checkpoint_.states.empty()) {
      pickle.put(int64_t{0});
      pickle.begin_dict();
      for (const auto& state : checkpoint_.states) {
        pickle.put(state.name);
        writer.put_tensor(writer.add_storage(at::kFloat, numel_), {numel_});
      }
      pickle.end_dict();
    }
    pickle.end_dict();
    pickle.end_dict();
  }

  const stored::AnyCheckpoint& checkpoint_;
  std::string folder_;
  std::vector<StoredTensor> trained_;
  std::vector<StoredTensor> frozen_;
  std::vector<StoredTensor> buffers_;
  int64_t numel_ = 0;  // of trained_
};

std::string write_latest(const std::string& out, const std::string& tag) {
  const std::string path = out + "/latest";
  formats::replace_file(path, tag);
  return path;
}

}  // namespace

std::vector<std::string> export_deepspeed(const stored::AnyCheckpoint& checkpoint,
                                          const std::string& out, const std::string& tag,
                                          bool overwrites) {
  formats::check_input(checkpoint.weights != nullptr,
                       "{}: holds the states of an optimizer and no weights", checkpoint.path);
  formats::check_input(formats::is_plain_name(tag), "{}: '{}' is no tag", out, tag);
  const at::NoGradGuard no_grad;
  const std::string folder = fmt::format("{}/{}", out, tag);
  formats::check_input(overwrites || !base::is_there(folder), "{}: is there already", folder);
  const formats::NewFolders above(out);
  above.make();
  const UnfinishedFolder unfinished(folder);
  const DeepSpeedExport files(checkpoint, unfinished.part());
  std::vector<std::string> written;
  for (const std::string& path : {files.write_model(), files.write_optimizer()}) {
    written.push_back(fmt::format("{}/{}", folder, formats::name_part(path)));
  }
  unfinished.finish();
  written.push_back(write_latest(out, tag));
  return written;
}

}  // namespace fullshard::checkpoint
