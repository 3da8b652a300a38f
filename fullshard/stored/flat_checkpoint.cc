// SPDX-License-Identifier: Apache-2.0
#include "fullshard/stored/flat_checkpoint.h"

#include <fmt/format.h>

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
  }

  const std::vector<StoredTensor>& tensors() const override { return tensors_; }

  void read(const std::string& name, int64_t begin, ElementSpan out) const override {
    formats::find_or_fail(*this, name, path_);
    const Place& place = places_.at(name);
    place.source->read(place.name, begin, out);
  }

  std::vector<SummedStorage> storages_of(const std::string& name) const override {
    formats::find_or_fail(*this, name, path_);
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

  std::string path_;
  std::map<std::string, Place> places_;
  std::vector<StoredTensor> tensors_;
};

}  // namespace

AnyCheckpoint flatten(const AnyCheckpoint& checkpoint) {
  AnyCheckpoint flat{.kind = checkpoint.kind, .path = checkpoint.path};
  flat.weights = std::make_unique<FlatSource>(checkpoint);
  flat.facts = checkpoint.facts;
  return flat;
}

}  // namespace fullshard::stored
