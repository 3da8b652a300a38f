// SPDX-License-Identifier: Apache-2.0
#include "fullshard/models/common/inputs.h"

#include <ATen/ops/aminmax.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "fullshard/base/error.h"
#include "fullshard/ops/attention/packed_documents.h"

namespace fullshard::models {
namespace {

template <class... Parts>
void check_input(bool condition, fmt::format_string<Parts...> format, Parts&&... parts) {
  if (!condition) fail_as(ErrorKind::input, format, std::forward<Parts>(parts)...);
}

}  // namespace

void check_tokens(std::string_view name, const at::Tensor& tokens, int64_t vocabulary,
                  int64_t max_positions) {
  check_input(tokens.defined() && tokens.dim() == 2 && tokens.scalar_type() == at::kLong,
              "{}: expected int64 tokens of shape [batch, sequence]", name);
  check_input(max_positions == 0 || tokens.size(1) <= max_positions,
              "{}: the sequence has {} tokens, but the model has {} positions; cut the sequences",
              name, tokens.size(1), max_positions);
  if (!tokens.device().is_cpu() || tokens.numel() == 0) return;
  const auto [least, most] = at::aminmax(tokens);
  check_input(least.item<int64_t>() >= 0 && most.item<int64_t>() < vocabulary,
              "{}: tokens from {} to {}, but the model's vocabulary has {}; use its own tokenizer",
              name, least.item<int64_t>(), most.item<int64_t>(), vocabulary);
}

void check_labels(std::string_view name, const at::Tensor& labels, const at::Tensor& tokens,
                  int64_t count, std::string_view set) {
  check_input(labels.scalar_type() == at::kLong && labels.sizes() == tokens.sizes(),
              "{}: expected int64 of shape [{}], found {} of shape [{}]", name,
              fmt::join(tokens.sizes(), ", "), c10::toString(labels.scalar_type()),
              fmt::join(labels.sizes(), ", "));
  if (!labels.device().is_cpu() || labels.numel() == 0) return;
  const auto [least, most] = at::aminmax(labels.masked_fill(labels == kNoLabel, 0));
  check_input(least.item<int64_t>() >= 0 && most.item<int64_t>() < count,
              "{}: labels from {} to {}, but the model's {} has {}; {} marks no label", name,
              least.item<int64_t>(), most.item<int64_t>(), set, count, kNoLabel);
}

void check_packed(const ModelInputs& inputs) {
  if (inputs.documents == nullptr) return;
  check_input(inputs.documents->positions.sizes() == inputs.input_ids.sizes(),
              "packed documents: fill rows of shape [{}], but the tokens are [{}]",
              fmt::join(inputs.documents->positions.sizes(), ", "),
              fmt::join(inputs.input_ids.sizes(), ", "));
  check_input(!inputs.attention_mask.defined(),
              "packed documents: together with an attention mask; leave it out, padding can be a "
              "document of its own");
  check_input(!inputs.labels.defined() || inputs.labels_are_next,
              "packed documents: labels must be the tokens that come next (labels_are_next); a "
              "model that moves them would ask for another document's");
}

void refuse_packed(const ModelInputs& inputs, std::string_view architecture) {
  check_input(inputs.documents == nullptr, "{}: takes no packed documents; give one in each row",
              architecture);
}

at::Tensor padding_mask(const at::Tensor& attention_mask) {
  if (!attention_mask.defined() || !attention_mask.device().is_cpu()) return attention_mask;
  return attention_mask.all().item<bool>() ? at::Tensor() : attention_mask;
}

}  // namespace fullshard::models
