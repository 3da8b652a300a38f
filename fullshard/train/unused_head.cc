// SPDX-License-Identifier: Apache-2.0
#include "fullshard/train/unused_head.h"

#include <fmt/format.h>

#include "fullshard/base/printable.h"
#include "fullshard/stored/side_files.h"

namespace fullshard::train {
namespace {

// The table that is loaded as the embedding: the first parameter with a row per token.
const StoredTensor* find_embedding(const TensorSource& weights, const LanguageModel& model) {
  for (const auto& item : model.named_parameters()) {
    if (item.value().dim() != 2 || item.value().size(0) != model.vocabulary()) continue;
    auto file = model.file_name(item.key());
    if (const StoredTensor* found = weights.find(file.name)) return found;
    for (const std::string& other : file.others) {
      if (const StoredTensor* found = weights.find(other)) return found;
    }
  }
  return nullptr;
}

}  // namespace

std::vector<std::string> unused_head_warnings(const ModelSource& source,
                                              const LanguageModel& model) {
  if (!source.has_weights) return {};
  const auto weights = stored::open_model_weights(source.folder);
  const StoredTensor* embedding = find_embedding(*weights, model);
  if (embedding == nullptr) return {};
  const StoredWeights stored = source.stored_weights();
  std::vector<std::string> warnings;
  for (const StoredTensor& tensor : weights->tensors()) {
    const bool is_passed_over = tensor.name != embedding->name &&
                                tensor.shape == embedding->shape &&
                                model.is_ignored_in_files(tensor.name);
    if (!is_passed_over || stored.are_equal(tensor.name, embedding->name)) continue;
    warnings.push_back(fmt::format(
        "{}: '{}' has other values than '{}' and is not used: {} says tie_word_embeddings, so that "
        "'{}' is used in its place; write false there if the other values are meant",
        tensor.file, base::printable(tensor.name), base::printable(embedding->name), source.where(),
        base::printable(embedding->name)));
  }
  return warnings;
}

}  // namespace fullshard::train
