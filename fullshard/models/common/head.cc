// SPDX-License-Identifier: Apache-2.0
#include "fullshard/models/common/head.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/nonzero_static.h>

#include <algorithm>

#include "fullshard/models/common/inputs.h"
#include "fullshard/ops/decoding/few_rows.h"
#include "fullshard/ops/loss/cross_entropy.h"
#include "fullshard/ops/products/linear.h"
#include "fullshard/tensor/pretence.h"

namespace fullshard::models {
namespace {

at::Tensor logits_of(const at::Tensor& hidden, const Head& head, bool is_decoding) {
  // The hidden states are scaled, not the logits: they are fewer.
  const auto scaled = head.scale == 1 ? hidden : hidden * head.scale;
  if (is_decoding) return ops::few_rows_linear(scaled, head.weight, head.bias);
  return linear(scaled, head.weight, head.bias);
}

// Work for a device that is worth another kernel or two, and too much for a graph to matter.
constexpr int64_t kManyRows = 4096;

HeadInputs labelled_rows(HeadInputs inputs) {
  const auto labels = inputs.labels.reshape({-1});
  const int64_t count =
      std::max<int64_t>(inputs.num_labels, 1);  // without any, a row that has none
  const auto places =
      tensor::is_pretended()
          ? at::empty({count}, labels.options())
          : at::nonzero_static(labels.ne(kNoLabel), count, /*fill_value=*/0).view(-1);
  inputs.hidden = inputs.hidden.reshape({-1, inputs.hidden.size(-1)}).index_select(0, places);
  inputs.labels = labels.index_select(0, places);
  return inputs;
}

HeadOutputs apply_head(const HeadInputs& given, const Head& head) {
  const bool takes_rows =
      !given.wants_logits && takes_labelled_rows(given.labels, given.num_labels);
  const auto inputs = takes_rows ? labelled_rows(given) : given;
  HeadOutputs outputs;
  if (inputs.labels.defined()) {
    CrossEntropyOptions options;
    options.ignore_index = kNoLabel;
    options.label_smoothing = inputs.label_smoothing;
    options.scale = head.scale;
    outputs.loss =
        linear_cross_entropy(inputs.hidden, head.weight, head.bias, inputs.labels, options);
  }
  if (!inputs.labels.defined() || inputs.wants_logits) {
    outputs.logits = logits_of(inputs.hidden, head, inputs.is_decoding);
  }
  return outputs;
}

HeadInputs head_inputs(const at::Tensor& hidden, const at::Tensor& labels,
                       const ModelInputs& inputs, double scale) {
  return {hidden, labels, inputs.wants_logits, inputs.label_smoothing, inputs.num_labels,
          scale,  false};
}

at::Tensor causal_labels(const ModelInputs& inputs) {
  const auto& labels = inputs.labels;
  const bool moves = labels.defined() && !inputs.labels_are_next;
  return moves ? next_token_labels(labels) : labels;
}

}  // namespace

bool takes_labelled_rows(const at::Tensor& labels, int64_t num_labels) {
  return labels.defined() && labels.is_cuda() && labels.numel() >= kManyRows && num_labels >= 0 &&
         4 * num_labels <= 3 * labels.numel();
}

at::Tensor next_token_labels(const at::Tensor& labels) {
  auto moved = at::full_like(labels, kNoLabel, at::MemoryFormat::Contiguous);
  const int64_t length = labels.size(1);
  if (length > 1) moved.narrow(1, 0, length - 1).copy_(labels.narrow(1, 1, length - 1));
  return moved;
}

LanguageHeadImpl::LanguageHeadImpl(int64_t width, int64_t vocabulary, bool has_bias)
    : LinearImpl(torch::nn::LinearOptions(width, vocabulary).bias(has_bias)) {
  set_vocabulary_part(nn::VocabularyPart::head);
  mark_as_head();
}

HeadOutputs LanguageHeadImpl::forward(HeadInputs inputs) {
  return apply_head(inputs, {weight, bias, inputs.scale});
}

ModelOutputs head_outputs(const at::Tensor& hidden, const Head& head, const at::Tensor& labels,
                          const ModelInputs& inputs) {
  auto [loss, logits] = apply_head(head_inputs(hidden, labels, inputs, head.scale), head);
  return {loss, logits, hidden};
}

ModelOutputs head_outputs(const at::Tensor& hidden, LanguageHead& head, const at::Tensor& labels,
                          const ModelInputs& inputs, double scale) {
  auto [loss, logits] = head(head_inputs(hidden, labels, inputs, scale));
  return {loss, logits, hidden};
}

ModelOutputs causal_outputs(const at::Tensor& hidden, const Head& head, const ModelInputs& inputs) {
  return head_outputs(hidden, head, causal_labels(inputs), inputs);
}

ModelOutputs causal_outputs(const at::Tensor& hidden, LanguageHead& head,
                            const ModelInputs& inputs) {
  return head_outputs(hidden, head, causal_labels(inputs), inputs);
}

ModelOutputs decoded_outputs(const at::Tensor& hidden, const Head& head) {
  return {{}, logits_of(hidden, head, /*is_decoding=*/true), hidden};
}

ModelOutputs decoded_outputs(const at::Tensor& hidden, LanguageHead& head, double scale) {
  auto [loss, logits] = head(HeadInputs{.hidden = hidden, .scale = scale, .is_decoding = true});
  return {loss, logits, hidden};
}

double mean_causal_keys(int64_t sequence_length, int64_t window) {
  const auto length = static_cast<double>(sequence_length);
  const auto span = static_cast<double>(window);
  if (window == 0 || window >= sequence_length) return length / 2;
  return span - span * span / (2 * length);
}

}  // namespace fullshard::models
