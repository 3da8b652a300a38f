// The last step of a language model: from hidden states to loss and logits.
#pragma once

#include <ATen/core/Tensor.h>

#include "fullshard/models/common/language_model.h"

namespace fullshard {

// logits = scale * (hidden * weight^T) + bias. The weight may be the embedding's.
struct Head {
  at::Tensor weight;
  at::Tensor bias{};
  double scale = 1;
};

// labels[s] becomes the label of what comes after s; the last place has none.
at::Tensor next_token_labels(const at::Tensor& labels);

// `labels` stand where their predictions do, [batch, sequence] as hidden's; undefined: no loss.
// From the inputs it takes wants_logits and label_smoothing.
ModelOutputs head_outputs(const at::Tensor& hidden, const Head& head, const at::Tensor& labels,
                          const ModelInputs& inputs);

// For decoders: moves the labels unless they are next tokens already.
ModelOutputs causal_outputs(const at::Tensor& hidden, const Head& head, const ModelInputs& inputs);

// The mean number of keys that a token sees: half the sequence, or less with a window (0: none).
double mean_causal_keys(int64_t sequence_length, int64_t window);

}  // namespace fullshard
