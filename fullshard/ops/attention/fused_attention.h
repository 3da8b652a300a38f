// SPDX-License-Identifier: Apache-2.0
// libtorch's fused attention kernels of the GPU, called by name: its general function would choose
// flash attention, which on Hopper takes almost twice cuDNN's time.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

namespace fullshard::ops {

enum class FusedKernel { cudnn, flash, flash_documents };

// Where packed documents begin, as PackedDocuments has it.
struct DocumentBorders {
  at::Tensor starts;  // undefined: every row is one
  int64_t longest = 0;
};

// 16-bit tensors [batch, sequence, heads, D] of any strides but the last; key and value may have
// fewer heads. Rows with documents lie side by side without gaps.
struct FusedAttentionInputs {
  at::Tensor query, key, value;
  bool causal;
  double scale;
  DocumentBorders borders = {};
};

struct FusedAttention {
  FusedKernel kernel;
  at::Tensor output;    // of the query's shape, contiguous
  at::Tensor log_sums;  // of every row, in the kernel's own layout
  at::Tensor seed, offset;
};

struct FusedAttentionGradients {
  at::Tensor query, key, value;  // contiguous
};

bool can_fuse_attention(int64_t head_width);

// Whether cuDNN may be asked, for a query [batch, sequence, heads, D] of 16 bits: it adds up the
// queries' gradients in the order of arrival.
bool prefers_cudnn(const at::Tensor& query);
// With autograd, of [batch, heads, sequence, D]; undefined: cuDNN has no plan for these shapes.
at::Tensor cudnn_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                           double dropout, bool causal, std::optional<double> scale);

FusedAttention fused_attention(const FusedAttentionInputs& inputs, bool wants_gradient);

FusedAttentionGradients fused_attention_backward(const FusedAttentionInputs& inputs,
                                                 const FusedAttention& kept,
                                                 const at::Tensor& output_gradient);

}  // namespace fullshard::ops
