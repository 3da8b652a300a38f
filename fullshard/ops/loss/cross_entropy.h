// SPDX-License-Identifier: Apache-2.0
// The loss of a language model from the hidden states, without ever holding all logits.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace fullshard {

struct CrossEntropyOptions {
  int64_t ignore_index = -100;  // rows with this label count nothing
  double label_smoothing = 0;   // as torch's: the share that goes to the uniform distribution
  double scale = 1;             // logits are hidden * weight^T * scale (T5 with tied weights)
  int64_t chunk_rows = 0;       // rows whose logits exist at once; 0: chosen by size
  // What may be held from forward to backward for the weight's gradient: one chunk's logits, or
  // with several chunks a sum of the weight's size. Beyond it backward computes the logits again.
  // -1: 256 MiB, on a GPU 2 GiB.
  int64_t largest_kept_bytes = -1;
};

// The mean over the labels of -log softmax(hidden * weight^T + bias)[label]; 0 when there are no
// labels. hidden [..., width], weight [vocabulary, width], bias [vocabulary] or undefined, labels
// of hidden's leading shape. The loss is fp32 (fp64 for fp64), and so are all sums. Logits are made
// in chunks of rows. Each chunk's gradients are taken in the same pass, in forward when what must
// be held until backward is small enough, else in backward; the weight's goes into its gradient
// sink when it has one. Without gradients only the loss is computed.
at::Tensor linear_cross_entropy(const at::Tensor& hidden, const at::Tensor& weight,
                                const at::Tensor& bias, const at::Tensor& labels,
                                const CrossEntropyOptions& options = {});

}  // namespace fullshard
