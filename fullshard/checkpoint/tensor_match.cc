// SPDX-License-Identifier: Apache-2.0
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "fullshard/checkpoint/load_plan.h"
#include "fullshard/formats/element_type.h"
#include "fullshard/formats/input_error.h"

namespace fullshard::checkpoint {
namespace {

constexpr size_t kMostProblems = 20;  // named

void check_optimizer(const stored::Manifest& manifest, const optim::OptimizerStates& states,
                     const std::string& folder) {
  formats::check_input(
      manifest.optimizer.has_value(),
      "{}: was saved without an optimizer, and {} needs its states ({}); load it without "
      "one, to begin anew",
      folder, states.name, fmt::join(states.names, ", "));
  const auto& stored = *manifest.optimizer;
  formats::check_input(
      stored.name == states.name && stored.states == states.names,
      "{}: was saved by {} with the states [{}], and this run's optimizer is {} with [{}]; "
      "use the one that saved it, or load without an optimizer to begin anew",
      folder, stored.name, fmt::format("{}", fmt::join(stored.states, ", ")), states.name,
      fmt::join(states.names, ", "));
}

class TensorMatcher {
 public:
  TensorMatcher(const stored::Manifest& manifest, bool wants_states)
      : wants_states_(wants_states), may_lack_frozen_(manifest.leaves_out_frozen) {
    for (const auto& tensor : manifest.tensors) {
      for (const auto& name : tensor.names) by_name_[name] = &tensor;
    }
    if (wants_states) states_ = manifest.optimizer->states;
  }

  void add(const ModelTensor& tensor) {
    const stored::ManifestTensor* found = nullptr;
    for (const auto& name : tensor.names) {
      const auto other = by_name_.find(name);
      if (other != by_name_.end() && found == nullptr) found = other->second;
    }
    matches_.push_back(found);
    if (found == nullptr && may_lack_frozen_ && is_frozen(tensor)) return;
    const auto& name = tensor.names.front();
    if (found == nullptr) {
      note("not in the checkpoint: {} {}", name, format_shape(tensor.shape));
      return;
    }
    used_.insert(found);
    compare(tensor, *found);
  }

  void look_for_extra(const stored::Manifest& manifest) {
    for (const auto& tensor : manifest.tensors) {
      if (used_.count(&tensor)) continue;
      note("not in the model: {} {}", tensor.names.front(), format_shape(tensor.shape));
    }
  }

  std::vector<const stored::ManifestTensor*> result(const std::string& folder) {
    if (problems_.empty()) return std::move(matches_);
    const size_t more = problems_.size() > kMostProblems ? problems_.size() - kMostProblems : 0;
    problems_.resize(problems_.size() - more);
    if (more > 0) problems_.push_back(fmt::format("and {} more", more));
    formats::fail_input("{}: is a checkpoint of another model\n  {}", folder,
                        fmt::join(problems_, "\n  "));
  }

 private:
  template <class... Parts>
  void note(fmt::format_string<Parts...> format, Parts&&... parts) {
    problems_.push_back(base::printable(fmt::format(format, std::forward<Parts>(parts)...)));
  }

  void compare(const ModelTensor& tensor, const stored::ManifestTensor& stored) {
    const auto& name = tensor.names.front();
    const std::set<std::string> names(tensor.names.begin(), tensor.names.end());
    if (names != std::set<std::string>(stored.names.begin(), stored.names.end())) {
      note("tied otherwise: [{}] in the model, [{}] in the checkpoint",
           fmt::join(tensor.names, ", "), fmt::join(stored.names, ", "));
    }
    if (stored.shape != tensor.shape) {
      note("another shape: {} is {}, in the checkpoint {}", name, format_shape(tensor.shape),
           format_shape(stored.shape));
    }
    const auto dtype = stored.weights.dtype;
    const bool are_floating = at::isFloatingType(dtype) && at::isFloatingType(tensor.dtype);
    if (dtype != tensor.dtype && !are_floating && tensor.numel() > 0) {
      note("another dtype: {} is {}, in the checkpoint {}", name, c10::toString(tensor.dtype),
           c10::toString(dtype));
    }
    const bool is_trained = tensor.group != nullptr && tensor.group->trainable();
    if (!wants_states_ || !is_trained) return;
    for (const auto& state : states_) {
      if (stored.states.count(state) || tensor.numel() == 0) continue;
      note("no state {}: {} was frozen when it was saved, and is trained now", state, name);
    }
  }

  bool wants_states_;
  bool may_lack_frozen_;
  std::vector<std::string> states_;
  std::map<std::string, const stored::ManifestTensor*> by_name_;
  std::set<const stored::ManifestTensor*> used_;
  std::vector<const stored::ManifestTensor*> matches_;
  std::vector<std::string> problems_;
};

}  // namespace

std::vector<const stored::ManifestTensor*> match_tensors(const stored::Manifest& manifest,
                                                         const std::vector<ModelTensor>& tensors,
                                                         const optim::OptimizerStates* states,
                                                         const std::string& folder) {
  if (states != nullptr) check_optimizer(manifest, *states, folder);
  TensorMatcher matcher(manifest, states != nullptr);
  for (const auto& tensor : tensors) matcher.add(tensor);
  matcher.look_for_extra(manifest);
  return matcher.result(folder);
}

}  // namespace fullshard::checkpoint
