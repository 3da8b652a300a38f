// SPDX-License-Identifier: Apache-2.0
#include "fullshard/train/batch_tensors.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <bit>
#include <numeric>
#include <tuple>
#include <utility>

#include "fullshard/base/bytes.h"
#include "fullshard/models/common/inputs.h"
#include "fullshard/models/common/unpadded.h"
#include "fullshard/ops/attention/packed_documents.h"

namespace fullshard {
namespace {

// Of rows without their padding, so that batches of various lengths have few shapes: libraries keep
// something for every one that they have seen, and CUDA graphs are of one.
constexpr int64_t kTokensTogether = 64, kTokensTogetherOnGpus = 512, kSizesPerOctave = 16;
constexpr int64_t kColumnsTogetherOnGpus = 128;

struct Width {
  int64_t given = 0, wanted = 0;
};

at::Tensor rows_of(std::vector<int64_t>& values, int64_t rows, Width columns, int64_t padding,
                   at::Device device) {
  if (values.empty()) return {};
  const auto given = at::from_blob(values.data(), {rows, columns.given}, at::kLong);
  if (device.is_cpu()) return given;
  // Out of pinned memory the copy is only put into the stream; the host does not wait for it.
  const auto pinned = at::empty({rows, columns.wanted}, given.options().pinned_memory(true));
  pinned.narrow(1, 0, columns.given).copy_(given);
  pinned.narrow(1, columns.given, columns.wanted - columns.given).fill_(padding);
  return pinned.to(device, /*non_blocking=*/true);
}

int64_t tokens_together(const std::vector<int64_t>& lengths, at::Device device) {
  const auto num_real = static_cast<uint64_t>(std::reduce(lengths.begin(), lengths.end()));
  return std::max(device.is_cpu() ? kTokensTogether : kTokensTogetherOnGpus,
                  static_cast<int64_t>(std::bit_floor(num_real)) / kSizesPerOctave);
}

// The layout of rows so long, and how wide they become for it.
std::pair<models::SharedUnpadded, Width> laid_out(const std::vector<int64_t>& lengths,
                                                  int64_t columns, int64_t most_columns,
                                                  at::Device device) {
  const int64_t together = tokens_together(lengths, device);
  if (lengths.empty() || !models::is_worth_unpadding(lengths, columns, together)) {
    return {nullptr, {columns, columns}};
  }
  const int64_t wanted = device.is_cpu() ? columns : round_up(columns, kColumnsTogetherOnGpus);
  const int64_t width = std::max(columns, std::min(wanted, most_columns));
  return {models::make_unpadded(lengths, width, device, together), {columns, width}};
}

}  // namespace

ModelInputs tensors_of(TokenBatch& batch, at::Device device) {
  ModelInputs inputs;
  Width columns, label_columns{batch.label_columns(), batch.label_columns()};
  std::tie(inputs.unpadded, columns) =
      laid_out(batch.lengths(), batch.columns, batch.most_columns, device);
  if (batch.decoder_columns > 0) {
    std::tie(inputs.unpadded_labels, label_columns) =
        laid_out(batch.label_lengths(), batch.decoder_columns, batch.most_decoder_columns, device);
  } else if (!batch.labels_are_classes) {
    label_columns = columns;
  }
  inputs.input_ids = rows_of(batch.input_ids, batch.rows, columns, 0, device);
  // On a GPU a mask costs something even where it hides nothing.
  if (std::ranges::any_of(batch.attention_mask, [](int64_t real) { return real == 0; })) {
    inputs.attention_mask = rows_of(batch.attention_mask, batch.rows, columns, 0, device);
  }
  inputs.token_type_ids = rows_of(batch.token_type_ids, batch.rows, columns, 0, device);
  inputs.labels = rows_of(batch.labels, batch.rows, label_columns, models::kNoLabel, device);
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
    if (batch.labels[static_cast<size_t>(row * batch.columns)] != models::kNoLabel) --labels;
  }
  return labels;
}

}  // namespace fullshard
