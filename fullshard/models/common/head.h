// SPDX-License-Identifier: Apache-2.0
// The last step of a language model: from hidden states to loss and logits.
#pragma once

#include <ATen/core/Tensor.h>

#include "fullshard/models/common/language_model.h"
#include "fullshard/nn/unit.h"
#include "fullshard/ops/products/linear.h"

namespace fullshard::models {

// A head whose weight is another module's: logits = scale * (hidden * weight^T) + bias.
struct Head {
  at::Tensor weight;
  at::Tensor bias{};
  double scale = 1;
};

// What a head is asked for; `labels` stand where their predictions do, undefined: no loss.
struct HeadInputs {
  at::Tensor hidden;
  at::Tensor labels{};
  bool wants_logits = false;  // else there are logits only where there are no labels
  double label_smoothing = 0;
  int64_t num_labels = -1;  // as ModelInputs has it
  double scale = 1;
  bool is_decoding = false;  // few rows, no gradients
};

struct HeadOutputs {
  at::Tensor loss{};
  at::Tensor logits{};
};

// A head with a weight of its own, as a Linear's. Loss and logits are made inside its forward, so
// that it can be a unit of its own.
class LanguageHeadImpl : public LinearImpl, public nn::UnitState {
 public:
  LanguageHeadImpl(int64_t width, int64_t vocabulary, bool has_bias = false);
  HeadOutputs forward(HeadInputs inputs);
};
FULLSHARD_UNIT(LanguageHead);

// labels[s] becomes the label of what comes after s; the last place has none.
at::Tensor next_token_labels(const at::Tensor& labels);

// Whether the head of a GPU takes the rows that have a label out first: where most have none
// (masked words, prompts of dialogues), only the others are worth logits. How many those are must
// be known on the host: to ask a GPU would stop it.
bool takes_labelled_rows(const at::Tensor& labels, int64_t num_labels);

// `labels` stand where their predictions do, [batch, sequence] as hidden's; undefined: no loss.
// From the inputs it takes wants_logits, label_smoothing and num_labels.
ModelOutputs head_outputs(const at::Tensor& hidden, const Head& head, const at::Tensor& labels,
                          const ModelInputs& inputs);

ModelOutputs head_outputs(const at::Tensor& hidden, LanguageHead& head, const at::Tensor& labels,
                          const ModelInputs& inputs, double scale = 1);

// For decoders: moves the labels unless they are next tokens already.
ModelOutputs causal_outputs(const at::Tensor& hidden, const Head& head, const ModelInputs& inputs);
ModelOutputs causal_outputs(const at::Tensor& hidden, LanguageHead& head,
                            const ModelInputs& inputs);

// Of hidden [n, width], in generation: logits only.
ModelOutputs decoded_outputs(const at::Tensor& hidden, const Head& head);
ModelOutputs decoded_outputs(const at::Tensor& hidden, LanguageHead& head, double scale = 1);

// The mean number of keys that a token sees: half the sequence, or less with a window (0: none).
double mean_causal_keys(int64_t sequence_length, int64_t window);

}  // namespace fullshard::models
