// SPDX-License-Identifier: Apache-2.0
// BERT that tells which class a text, or a pair of texts, belongs to.
#pragma once

#include <string>
#include <vector>

#include "fullshard/models/bert/bert_model.h"

namespace fullshard::models {

// Labels are [batch], or [batch, 1]: a class of each row. Logits are [batch, classes]. `hidden` of
// the outputs is the encoder's last state.
class BertForSequenceClassificationImpl : public BertLanguageModel {
 public:
  explicit BertForSequenceClassificationImpl(const BertConfig& config);
  ModelOutputs forward(ModelInputs inputs) override;
  std::vector<std::string> class_names() const override { return config_.classes; }

 private:
  at::Tensor class_labels(const ModelInputs& inputs) const;

  torch::nn::Module& body_;  // what files call "bert"
  BertEncoder encoder_;
  Linear pooler_ = nullptr;
  Linear classifier_ = nullptr;
};
FULLSHARD_UNIT(BertForSequenceClassification);

}  // namespace fullshard::models
