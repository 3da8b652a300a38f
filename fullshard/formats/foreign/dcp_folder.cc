// SPDX-License-Identifier: Apache-2.0
#include "fullshard/formats/foreign/dcp_folder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "fullshard/formats/element_type.h"
#include "fullshard/formats/folder.h"
#include "fullshard/formats/foreign/dcp_source.h"
#include "fullshard/formats/input_error.h"

namespace fullshard::formats {

bool is_dcp_folder(const std::string& path) {
  return base::is_file(fmt::format("{}/{}", path, kDcpMetadata));
}

DcpFolder::DcpFolder(const std::string& path)
    : path_(path), metadata_(std::make_shared<const DcpMetadata>(read_dcp_metadata(path))) {
  sort_names();
}

// A model's own names may begin with "model." too (Llama's do), so the keys decide where the
// metadata has them.
void DcpFolder::sort_names() {
  for (const auto& [name, tensor] : metadata_->tensors) {
    const auto known = metadata_->keys.find(name);
    names_.add(name, known == metadata_->keys.end() ? keys_of_name(name) : known->second);
  }
  if (names_.weights.empty() && names_.states.empty()) names_.weights = std::move(names_.others);
  names_.take_step();
}

std::unique_ptr<TensorSource> DcpFolder::weights() const {
  if (names_.weights.empty()) return nullptr;
  return std::make_unique<DcpSource>(path_, metadata_, names_.weights);
}

std::vector<std::string> DcpFolder::states() const {
  std::vector<std::string> names;
  for (const auto& [name, tensors] : names_.states) names.push_back(name);
  return names;
}

std::unique_ptr<TensorSource> DcpFolder::state(const std::string& name) const {
  const auto found = names_.states.find(name);
  check_input(found != names_.states.end(), "{}: has no optimizer state '{}', only {}", path_, name,
              fmt::format("{}", fmt::join(states(), ", ")));
  return std::make_unique<DcpSource>(path_, metadata_, found->second);
}

std::optional<int64_t> DcpFolder::num_steps() const {
  const auto found = metadata_->tensors.find(names_.step);
  if (found == metadata_->tensors.end() || checked_numel(found->second.shape) != 1) {
    return std::nullopt;
  }
  const DcpSource source(path_, metadata_, {{names_.step, names_.step}});
  double count = 0;
  source.read(names_.step, 0, ElementSpan(count));
  check_input(count >= 0 && count < 1e15, "{}: {}: is {}, expected a count", path_, names_.step,
              count);
  return static_cast<int64_t>(count);
}

AccelerateFolders find_accelerate_folders(const std::string& path) {
  AccelerateFolders found;
  const std::string model = path + "/pytorch_model_fsdp_0";
  const std::string optimizer = path + "/optimizer_0";
  if (is_dcp_folder(model)) found.model = model;
  if (is_dcp_folder(optimizer)) found.optimizer = optimizer;
  return found;
}

}  // namespace fullshard::formats
