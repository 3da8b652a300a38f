// SPDX-License-Identifier: Apache-2.0
#include "fullshard/models/bert/bert_classifier.h"

#include <ATen/ops/tanh.h>

#include "fullshard/base/error.h"
#include "fullshard/models/common/inputs.h"
#include "fullshard/models/common/module_tree.h"
#include "fullshard/ops/dropout.h"

namespace fullshard::models {

BertForSequenceClassificationImpl::BertForSequenceClassificationImpl(const BertConfig& config)
    : BertLanguageModel(config), body_(add_folder(*this, "bert")), encoder_(body_, config) {
  pooler_ =
      add_folder(body_, "pooler").register_module("dense", Linear(config.width, config.width));
  classifier_ = register_module("classifier",
                                Linear(config.width, static_cast<int64_t>(config.classes.size())));
  classifier_->mark_as_head();
}

at::Tensor BertForSequenceClassificationImpl::class_labels(const ModelInputs& inputs) const {
  if (!inputs.labels.defined()) return {};
  const auto rows = inputs.input_ids.narrow(1, 0, 1);
  const auto labels = inputs.labels.dim() == 1 ? inputs.labels.unsqueeze(1) : inputs.labels;
  check_labels("labels", labels, rows, static_cast<int64_t>(config_.classes.size()),
               "list of classes");
  return labels.squeeze(1);
}

ModelOutputs BertForSequenceClassificationImpl::forward(ModelInputs inputs) {
  const auto hidden = encoder_.forward(inputs, is_training());
  const auto labels = class_labels(inputs);
  const auto pooled = at::tanh(pooler_(hidden.select(1, 0)));
  const auto seen = ops::dropped(pooled, is_training() ? config_.classifier_dropout : 0);
  auto outputs = head_outputs(seen, Head{classifier_->weight, classifier_->bias}, labels, inputs);
  outputs.hidden = hidden;
  return outputs;
}

}  // namespace fullshard::models
