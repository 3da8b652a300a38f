// SPDX-License-Identifier: Apache-2.0
#include "fullshard/formats/weights/flat_state_dict.h"

#include <algorithm>
#include <utility>

#include "fullshard/formats/input_error.h"
#include "fullshard/formats/read_elements.h"

namespace fullshard::formats {
namespace {

// Some tensors of a source under other names.
class RenamedPart : public TensorSource {
 public:
  RenamedPart(std::shared_ptr<const TensorSource> source, const StateDictNames::InFile& names)
      : source_(std::move(source)), names_(names) {
    for (const auto& [name, in_file] : names_) {
      tensors_.push_back(*source_->find(in_file));
      tensors_.back().name = name;
    }
  }

  const std::vector<StoredTensor>& tensors() const override { return tensors_; }
  void read(const std::string& name, int64_t begin, ElementSpan out) const override {
    source_->read(in_file(name), begin, out);
  }
  std::optional<Place> place_of(const std::string& name) const override {
    return find(name) == nullptr ? std::nullopt : source_->place_of(in_file(name));
  }
  std::vector<SummedStorage> storages_of(const std::string& name) const override {
    return source_->storages_of(in_file(name));
  }

 private:
  const std::string& in_file(const std::string& name) const {
    find_or_fail(*this, name, tensors_.front().file);
    return names_.at(name);
  }

  std::shared_ptr<const TensorSource> source_;
  StateDictNames::InFile names_;
  std::vector<StoredTensor> tensors_;  // at least one
};

StateDictNames names_of(const TensorSource& source) {
  StateDictNames names;
  for (const auto& tensor : source.tensors()) names.add(tensor.name, keys_of_name(tensor.name));
  return names;
}

}  // namespace

bool FlatStateDict::is_one(const TensorSource& source) {
  const StateDictNames names = names_of(source);
  return !names.states.empty() && names.others.empty();
}

FlatStateDict::FlatStateDict(std::shared_ptr<const TensorSource> source)
    : source_(std::move(source)), names_(names_of(*source_)) {
  names_.take_step();
}

std::unique_ptr<TensorSource> FlatStateDict::weights() const {
  if (names_.weights.empty()) return nullptr;
  return std::make_unique<RenamedPart>(source_, names_.weights);
}

std::vector<std::string> FlatStateDict::states() const {
  std::vector<std::string> names;
  for (const auto& [name, tensors] : names_.states) names.push_back(name);
  return names;
}

std::unique_ptr<TensorSource> FlatStateDict::state(const std::string& name) const {
  return std::make_unique<RenamedPart>(source_, names_.states.at(name));
}

std::optional<int64_t> FlatStateDict::num_steps() const {
  const StoredTensor* step = source_->find(names_.step);
  if (step == nullptr || checked_numel(step->shape) != 1) return std::nullopt;
  double count = 0;
  source_->read(step->name, 0, ElementSpan(count));
  check_input(count >= 0 && count < 1e15, "{}: {}: is {}, expected a count", step->file, step->name,
              count);
  return static_cast<int64_t>(count);
}

}  // namespace fullshard::formats
