// SPDX-License-Identifier: Apache-2.0
#include "fullshard/stored/flat_checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "fullshard/formats/convert_kernels.h"
#include "fullshard/formats/read_elements.h"

namespace fullshard::stored {
namespace {

class FlatSource : public TensorSource {
 public:
  explicit FlatSource(const AnyCheckpoint& checkpoint) : path_(checkpoint.path) {
    if (checkpoint.weights != nullptr) {
      for (const auto& tensor : checkpoint.weights->tensors()) {
        add(*checkpoint.weights, tensor, "model." + tensor.name);
      }
    }
    for (const auto& state : checkpoint.states) {
      for (const auto& tensor : state.tensors->tensors()) {
        add(*state.tensors, tensor, fmt::format("optim.state.{}.{}", tensor.name, state.name));
      }
    }
    for (const auto& [name, place] : places_) {
      tensors_.push_back(*place.source->find(place.name));
      tensors_.back().name = name;
    }
    add_steps(checkpoint);
  }

  const std::set<std::string>& steps() const { return steps_; }

  const std::vector<StoredTensor>& tensors() const override { return tensors_; }

  void read(const std::string& name, int64_t begin, ElementSpan out) const override {
    const StoredTensor& tensor = formats::find_or_fail(*this, name, path_);
    if (steps_.contains(name)) {
      formats::check_target(tensor, begin, out);
      float count = num_steps_;
      return formats::convert_elements(ElementSpan(&count, out.numel, at::kFloat), out);
    }
    const Place& place = places_.at(name);
    place.source->read(place.name, begin, out);
  }

  std::vector<SummedStorage> storages_of(const std::string& name) const override {
    formats::find_or_fail(*this, name, path_);
    if (steps_.contains(name)) return {};
    const Place& place = places_.at(name);
    return place.source->storages_of(place.name);
  }

 private:
  struct Place {
    const TensorSource* source;
    std::string name;
  };

  void add(const TensorSource& source, const StoredTensor& tensor, std::string name) {
    places_.insert({std::move(name), {&source, tensor.name}});
  }

  // As torch's optimizers count steps: for each parameter, as an fp32 number.
  void add_steps(const AnyCheckpoint& checkpoint) {
    const auto steps =
        checkpoint.optimizer_steps ? checkpoint.optimizer_steps : checkpoint.num_steps;
    if (!steps || checkpoint.states.empty()) return;
    num_steps_ = static_cast<float>(*steps);
    for (const auto& tensor : checkpoint.states.front().tensors->tensors()) {
      const std::string name = fmt::format("optim.state.{}.step", tensor.name);
      if (!places_.contains(name) && steps_.insert(name).second) {
        tensors_.push_back({name, {}, at::kFloat, tensor.file});
      }
    }
    std::ranges::sort(tensors_, {}, &StoredTensor::name);
  }

  std::string path_;
  std::map<std::string, Place> places_;
  std::set<std::string> steps_;
  float num_steps_ = 0;
  std::vector<StoredTensor> tensors_;
};

}  // namespace

AnyCheckpoint flatten(const AnyCheckpoint& checkpoint) {
  AnyCheckpoint flat{.kind = checkpoint.kind, .path = checkpoint.path};
  auto source = std::make_unique<FlatSource>(checkpoint);
  flat.exact = source->steps();
  flat.weights = std::move(source);
  flat.facts = checkpoint.facts;
  return flat;
}

}  // namespace fullshard::stored
