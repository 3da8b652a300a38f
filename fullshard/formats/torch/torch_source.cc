// SPDX-License-Identifier: Apache-2.0
#include "fullshard/formats/torch/torch_source.h"

#include <fmt/format.h>

#include <map>
#include <utility>

#include "fullshard/formats/input_error.h"
#include "fullshard/formats/read_elements.h"

namespace fullshard::formats {
namespace {

using Tensors = std::map<std::string, TorchTensor>;

Tensors tensors_of(const TorchFile& file, const PickleValue& dict) {
  Tensors tensors;
  for (const auto& [key, value] : dict.pairs) {
    if (key->kind != PickleKind::text) continue;
    const std::string where = fmt::format("{}: tensor '{}'", file.path(), key->text);
    auto tensor = file.tensor(*value, where);
    if (!tensor) continue;
    check_input(tensors.emplace(key->text, std::move(*tensor)).second, "{}: occurs twice", where);
  }
  return tensors;
}

Tensors find_state_dict(const TorchFile& file) {
  const PickleValue& root = file.root();
  check_input(root.kind == PickleKind::dict,
              "{}: holds {}, not a dictionary of tensors; save model.state_dict() instead",
              file.path(), root.describe());
  Tensors tensors = tensors_of(file, root);
  for (const auto* key : {"state_dict", "model", "module"}) {
    if (!tensors.empty()) break;
    const PickleValue* inner = root.find(key);
    if (inner != nullptr && inner->kind == PickleKind::dict) tensors = tensors_of(file, *inner);
  }
  check_input(!tensors.empty(),
              "{}: holds no tensors, neither by name nor under state_dict, model or module",
              file.path());
  return tensors;
}

}  // namespace

TorchSource::TorchSource(const std::string& path) : file_(path) {
  for (auto& [name, place] : find_state_dict(file_)) {
    tensors_.push_back({name, place.shape, place.dtype, path});
    places_.push_back(std::move(place));
  }
}

void TorchSource::read(const std::string& name, int64_t begin, ElementSpan out) const {
  const StoredTensor& tensor = find_or_fail(*this, name, file_.path());
  check_target(tensor, begin, out);
  file_.read(places_[static_cast<size_t>(&tensor - tensors_.data())], begin, out,
             fmt::format("tensor '{}'", name));
}

std::vector<SummedStorage> TorchSource::storages_of(const std::string& name) const {
  const StoredTensor& tensor = find_or_fail(*this, name, file_.path());
  auto storage = file_.storage_of(places_[static_cast<size_t>(&tensor - tensors_.data())],
                                  fmt::format("tensor '{}'", name));
  if (!storage) return {};
  return {std::move(*storage)};
}

}  // namespace fullshard::formats
