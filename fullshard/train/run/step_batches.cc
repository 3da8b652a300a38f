// SPDX-License-Identifier: Apache-2.0
#include "fullshard/train/run/step_batches.h"

#include <utility>

#include "fullshard/train/batch_tensors.h"

namespace fullshard::train {

StepBatches::StepBatches(std::unique_ptr<Loader> loader, const LanguageModel& model,
                         at::Device device, int64_t num_per_step)
    : loader_(std::move(loader)), model_(model), device_(device), num_per_step_(num_per_step) {}

std::vector<StepBatch> StepBatches::next() {
  std::vector<StepBatch> batches(static_cast<size_t>(num_per_step_));
  // Where ranks may have fewer rows than others, all of them count.
  const bool labels_all = loader_->is_whole_step() && loader_->labels_every_token();
  for (StepBatch& batch : batches) {
    batch.tokens = loader_->next();
    batch.inputs = tensors_of(batch.tokens, device_);
    batch.num_labels = counted_labels(batch.tokens, model_);
    batch.labels_all_tokens = labels_all;
  }
  return batches;
}

std::vector<StepBatch> StepBatches::take() {
  if (error_) std::rethrow_exception(error_);
  return brought_.empty() ? next() : std::exchange(brought_, {});
}

void StepBatches::bring_next() {
  if (device_.is_cpu() || !brought_.empty()) return;
  try {
    brought_ = next();
  } catch (...) {
    error_ = std::current_exception();
  }
}

void StepBatches::seek(int64_t step) {
  brought_.clear();
  error_ = nullptr;
  loader_->seek(step);
}

}  // namespace fullshard::train
