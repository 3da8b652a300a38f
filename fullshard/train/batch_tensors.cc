// SPDX-License-Identifier: Apache-2.0
#include "fullshard/train/batch_tensors.h"

#include <ATen/ops/from_blob.h>

#include <algorithm>

#include "fullshard/ops/attention/packed_documents.h"

namespace fullshard {
namespace {

at::Tensor rows_of(std::vector<int64_t>& values, int64_t rows, int64_t columns, at::Device device) {
  if (values.empty()) return {};
  const auto host = at::from_blob(values.data(), {rows, columns}, at::kLong);
  if (device.is_cpu()) return host;
  // Out of pinned memory the copy is only put into the stream; the host does not wait for it.
  return host.pin_memory().to(device, /*non_blocking=*/true);
}

}  // namespace

ModelInputs tensors_of(TokenBatch& batch, at::Device device) {
  ModelInputs inputs;
  inputs.input_ids = rows_of(batch.input_ids, batch.rows, batch.columns, device);
  inputs.lengths = batch.lengths();
  // On a GPU a mask costs something even where it hides nothing.
  if (std::ranges::any_of(batch.attention_mask, [](int64_t real) { return real == 0; })) {
    inputs.attention_mask = rows_of(batch.attention_mask, batch.rows, batch.columns, device);
  }
  if (batch.decoder_columns > 0) inputs.label_lengths = batch.label_lengths();
  inputs.token_type_ids = rows_of(batch.token_type_ids, batch.rows, batch.columns, device);
  inputs.labels = rows_of(batch.labels, batch.rows, batch.label_columns(), device);
  inputs.labels_are_next = batch.labels_are_next;
  if (!batch.document_lengths.empty()) {
    inputs.documents = ops::make_packed_documents(batch.document_lengths, device);
  }
  return inputs;
}

int64_t counted_labels(const TokenBatch& batch, const LanguageModel& model) {
  int64_t labels = batch.num_labels();
  if (batch.labels_are_next || model.is_masked() || model.is_encoder_decoder()) return labels;
  for (int64_t row = 0; row < batch.rows; ++row) {
    if (batch.labels[static_cast<size_t>(row * batch.columns)] != -100) --labels;
  }
  return labels;
}

}  // namespace fullshard
