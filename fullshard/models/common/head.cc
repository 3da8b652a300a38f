#include "fullshard/models/common/head.h"

#include <ATen/ops/full_like.h>

#include "fullshard/models/common/inputs.h"
#include "fullshard/ops/cross_entropy.h"
#include "fullshard/ops/linear.h"

namespace fullshard {
namespace {

at::Tensor logits_of(const at::Tensor& hidden, const Head& head) {
  // The hidden states are scaled, not the logits: they are fewer.
  const auto scaled = head.scale == 1 ? hidden : hidden * head.scale;
  return linear(scaled, head.weight, head.bias);
}

}  // namespace

at::Tensor next_token_labels(const at::Tensor& labels) {
  auto moved = at::full_like(labels, kNoLabel, at::MemoryFormat::Contiguous);
  const int64_t length = labels.size(1);
  if (length > 1) moved.narrow(1, 0, length - 1).copy_(labels.narrow(1, 1, length - 1));
  return moved;
}

ModelOutputs head_outputs(const at::Tensor& hidden, const Head& head, const at::Tensor& labels,
                          const ModelInputs& inputs) {
  ModelOutputs outputs;
  outputs.hidden = hidden;
  if (labels.defined()) {
    CrossEntropyOptions options;
    options.ignore_index = kNoLabel;
    options.label_smoothing = inputs.label_smoothing;
    options.scale = head.scale;
    outputs.loss = linear_cross_entropy(hidden, head.weight, head.bias, labels, options);
  }
  if (!labels.defined() || inputs.wants_logits) outputs.logits = logits_of(hidden, head);
  return outputs;
}

ModelOutputs causal_outputs(const at::Tensor& hidden, const Head& head, const ModelInputs& inputs) {
  const auto& labels = inputs.labels;
  const bool moves = labels.defined() && !inputs.labels_are_next;
  return head_outputs(hidden, head, moves ? next_token_labels(labels) : labels, inputs);
}

double mean_causal_keys(int64_t sequence_length, int64_t window) {
  const auto length = static_cast<double>(sequence_length);
  const auto span = static_cast<double>(window);
  if (window == 0 || window >= sequence_length) return length / 2;
  return span - span * span / (2 * length);
}

}  // namespace fullshard
