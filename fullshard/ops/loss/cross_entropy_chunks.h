// SPDX-License-Identifier: Apache-2.0
// Cross-entropy in chunks of rows: the pass over the chunks, with or without gradients.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "fullshard/ops/loss/cross_entropy.h"

namespace fullshard::ops {

struct CrossEntropyProblem {
  at::Tensor hidden;  // [rows, width], multiplied with options.scale already
  at::Tensor weight;  // [vocabulary, width]
  at::Tensor bias;    // [vocabulary] or undefined
  at::Tensor labels;  // [rows], int64, contiguous, in the vocabulary or the ignore index
  CrossEntropyOptions options;
};

// Which gradients a pass takes.
struct CrossEntropyWanted {
  bool hidden = false, weight = false, bias = false;
  bool any() const { return hidden || weight || bias; }
};

// Gradients are those of the sum of the losses, without the upstream gradient and the division by
// the number of labels: softmax minus target stays within [-1, 1], which no dtype loses, and one
// factor does the rest.
struct CrossEntropySums {
  at::Tensor losses;  // per row; fp32, fp64 for fp64
  at::Tensor hidden;  // of hidden's dtype
  at::Tensor weight;  // fp32, fp64 for fp64; with several chunks, or where it was asked for
  at::Tensor bias;    // as weight
  at::Tensor kept;    // one chunk: the gradient of its logits, from which weight's is one product
};

// Chosen by size when the options leave it open; 0 without rows.
int64_t chunk_rows(const CrossEntropyProblem& problem);

// Bytes that `weight` or `kept` of a pass hold.
int64_t bytes_for_weight_gradient(const CrossEntropyProblem& problem);

// `weight_sum`: where to write the weight's gradient; undefined: `weight` or `kept` gets it.
CrossEntropySums run_chunks(const CrossEntropyProblem& problem, const CrossEntropyWanted& wanted,
                            const at::Tensor& weight_sum = {});

}  // namespace fullshard::ops
