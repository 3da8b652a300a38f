// SPDX-License-Identifier: Apache-2.0
#include "fullshard/models/common/token_table.h"

namespace fullshard::models {

// The padding token is set after the construction, which would zero its row: values are
// LanguageModel::initialise's to give.
TokenTable::TokenTable(torch::nn::Module& parent, const std::string& name,
                       const TokenTableOptions& options) {
  if (options.serves_as_head) {
    plain_ = parent.register_module(name, Embedding(options.vocabulary, options.width));
    plain_->options.padding_idx(options.padding_token);
  } else {
    marked_ = parent.register_module(name, Wrap<Embedding>(options.vocabulary, options.width));
    marked_->options.padding_idx(options.padding_token);
    marked_->set_vocabulary_part(nn::VocabularyPart::embedding);
  }
}

at::Tensor TokenTable::operator()(const at::Tensor& tokens) {
  return plain_.is_empty() ? marked_(tokens) : plain_(tokens);
}

const at::Tensor& TokenTable::weight() const {
  return plain_.is_empty() ? marked_->weight : plain_->weight;
}

}  // namespace fullshard::models
