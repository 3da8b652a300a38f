// SPDX-License-Identifier: Apache-2.0
// What a batch must be before a model looks at it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string_view>

#include "fullshard/models/common/language_model.h"

namespace fullshard::models {

inline constexpr int64_t kNoLabel = -100;

// [batch, sequence] of integers, each a token of the vocabulary, and no longer than the model's
// positions (0: no limit); else an Error (kind input) with `name` in it. Values are looked at on
// the CPU only: elsewhere that would stop the device.
void check_tokens(std::string_view name, const at::Tensor& tokens, int64_t vocabulary,
                  int64_t max_positions);
// The shape of the tokens, each kNoLabel or one of so many: tokens of the `set`, or classes.
void check_labels(std::string_view name, const at::Tensor& labels, const at::Tensor& tokens,
                  int64_t count, std::string_view set = "vocabulary");

// Decoders: documents that fill the rows, with labels that are next and without a mask.
void check_packed(const ModelInputs& inputs);
// Of a model that takes no packed documents.
void refuse_packed(const ModelInputs& inputs, std::string_view architecture);

// The mask, or nothing when it hides nothing (known on the CPU only): attention is faster without.
at::Tensor padding_mask(const at::Tensor& attention_mask);

}  // namespace fullshard::models
