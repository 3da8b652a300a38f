// SPDX-License-Identifier: Apache-2.0
#include "fullshard/checkpoint/weights_folder.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstring>
#include <limits>
#include <set>
#include <utility>

#include "fullshard/base/folder_names.h"
#include "fullshard/formats/replace_file.h"
#include "fullshard/tensor_io/write_tensor.h"

namespace fullshard::checkpoint {
namespace {

constexpr const char* kSingleFile = "model.safetensors";

// "model-00001-of-00003.safetensors"
bool is_part_name(const std::string& name) {
  constexpr const char* kPattern = "model-#####-of-#####.safetensors";
  if (name.size() != std::strlen(kPattern)) return false;
  for (size_t i = 0; i < name.size(); ++i) {
    const bool is_digit = name[i] >= '0' && name[i] <= '9';
    if (kPattern[i] == '#' ? !is_digit : name[i] != kPattern[i]) return false;
  }
  return true;
}

std::vector<std::string> weight_files_in(const std::string& folder) {
  auto names = base::names_in_folder(folder);
  std::erase_if(names, [](const std::string& name) {
    return name != kSingleFile && name != formats::kSafetensorsIndex && !is_part_name(name);
  });
  return names;
}

}  // namespace

WeightsFolder::WeightsFolder(std::string folder, const std::vector<TensorPlan>& tensors,
                             int64_t max_file_bytes, const std::string& file_name)
    : folder_(std::move(folder)),
      is_named_(!file_name.empty()),
      split_(formats::split_into_files(
          tensors, is_named_ ? std::numeric_limits<int64_t>::max() : max_file_bytes)) {
  if (is_named_) split_.files.front().name = file_name;
  for (const auto& file : split_.files) {
    const auto path = fmt::format("{}/{}", folder_, file.name);
    ::unlink((path + ".part").c_str());  // of a run that was killed
    writers_.push_back(std::make_unique<SafetensorsWriter>(path, file.tensors));
    for (const auto& tensor : file.tensors) writer_of_[tensor.name] = writers_.back().get();
  }
}

void WeightsFolder::write_range(const std::string& tensor, int64_t begin,
                                const at::Tensor& values) {
  tensor_io::write_tensor_range(*writer_of_.at(tensor), tensor, begin, values);
}

void WeightsFolder::finish() {
  for (const auto& writer : writers_) writer->finish();
  if (split_.needs_index()) write_index();
  if (!is_named_) remove_stale();
}

void WeightsFolder::write_index() {
  const auto path = fmt::format("{}/{}", folder_, formats::kSafetensorsIndex);
  formats::replace_file(path, split_.index_json());
}

void WeightsFolder::remove_stale() const {
  std::set<std::string> written;
  for (const auto& file : split_.files) written.insert(file.name);
  if (split_.needs_index()) written.insert(formats::kSafetensorsIndex);
  for (const auto& name : weight_files_in(folder_)) {
    if (!written.count(name)) ::unlink(fmt::format("{}/{}", folder_, name).c_str());
  }
}

}  // namespace fullshard::checkpoint
