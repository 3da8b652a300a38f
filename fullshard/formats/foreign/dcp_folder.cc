// SPDX-License-Identifier: Apache-2.0
#include "fullshard/formats/foreign/dcp_folder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "fullshard/formats/element_type.h"
#include "fullshard/formats/folder.h"
#include "fullshard/formats/foreign/dcp_source.h"
#include "fullshard/formats/input_error.h"

namespace fullshard::formats {
namespace {

constexpr std::array<std::string_view, 3> kModelKeys = {"model", "module", "state_dict"};
constexpr std::array<std::string_view, 2> kOptimizerKeys = {"optimizer", "optim"};

template <size_t count>
bool is_one_of(const std::array<std::string_view, count>& keys, std::string_view key) {
  return std::ranges::find(keys, key) != keys.end();
}

std::vector<std::string> split(const std::string& name) {
  std::vector<std::string> parts;
  for (size_t at = 0; at <= name.size();) {
    const size_t dot = std::min(name.find('.', at), name.size());
    parts.push_back(name.substr(at, dot - at));
    at = dot + 1;
  }
  return parts;
}

std::string join(const std::vector<std::string>& keys, size_t begin, size_t end) {
  return fmt::format("{}", fmt::join(keys.begin() + static_cast<ptrdiff_t>(begin),
                                     keys.begin() + static_cast<ptrdiff_t>(end), "."));
}

}  // namespace

bool is_dcp_folder(const std::string& path) {
  return base::is_file(fmt::format("{}/{}", path, kDcpMetadata));
}

DcpFolder::DcpFolder(const std::string& path)
    : path_(path), metadata_(std::make_shared<const DcpMetadata>(read_dcp_metadata(path))) {
  sort_names();
}

// A model's own names may begin with "model." too (Llama's do), so the keys decide where the
// metadata has them. A whole application may lie one key deeper.
void DcpFolder::sort_names() {
  FlatNames others;
  for (const auto& [name, tensor] : metadata_->tensors) {
    const auto known = metadata_->keys.find(name);
    const std::vector<std::string> keys =
        known == metadata_->keys.end() ? split(name) : known->second;
    const size_t top = !keys.empty() && keys[0] == "app" ? 1 : 0;
    const size_t left = keys.size() - std::min(keys.size(), top);
    if (left >= 2 && is_one_of(kModelKeys, keys[top])) {
      weights_[join(keys, top + 1, keys.size())] = name;
    } else if (left >= 2 && is_one_of(kOptimizerKeys, keys[top])) {
      if (left < 4 || keys[top + 1] != "state") continue;
      states_[keys.back()][join(keys, top + 2, keys.size() - 1)] = name;
    } else {
      others[name] = name;
    }
  }
  if (weights_.empty() && states_.empty()) weights_ = std::move(others);
  const auto steps = states_.find("step");
  if (steps == states_.end()) return;
  step_ = steps->second.begin()->second;
  states_.erase(steps);
}

std::unique_ptr<TensorSource> DcpFolder::weights() const {
  if (weights_.empty()) return nullptr;
  return std::make_unique<DcpSource>(path_, metadata_, weights_);
}

std::vector<std::string> DcpFolder::states() const {
  std::vector<std::string> names;
  for (const auto& [name, tensors] : states_) names.push_back(name);
  return names;
}

std::unique_ptr<TensorSource> DcpFolder::state(const std::string& name) const {
  const auto found = states_.find(name);
  check_input(found != states_.end(), "{}: has no optimizer state '{}', only {}", path_, name,
              fmt::format("{}", fmt::join(states(), ", ")));
  return std::make_unique<DcpSource>(path_, metadata_, found->second);
}

std::optional<int64_t> DcpFolder::num_steps() const {
  const auto found = metadata_->tensors.find(step_);
  if (found == metadata_->tensors.end() || checked_numel(found->second.shape) != 1) {
    return std::nullopt;
  }
  const DcpSource source(path_, metadata_, {{step_, step_}});
  double count = 0;
  source.read(step_, 0, ElementSpan(count));
  check_input(count >= 0 && count < 1e15, "{}: {}: is {}, expected a count", path_, step_, count);
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
