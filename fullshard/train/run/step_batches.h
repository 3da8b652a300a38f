// SPDX-License-Identifier: Apache-2.0
// The micro-batches of a step as tensors on the device.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <vector>

#include "fullshard/data/loader.h"
#include "fullshard/models/common/language_model.h"

namespace fullshard::train {

struct StepBatch {
  TokenBatch tokens;  // on the CPU the inputs look at its memory
  ModelInputs inputs;
  int64_t num_labels = 0;          // that the mean loss is over
  bool labels_all_tokens = false;  // each token is followed by its label
};

// Belongs to one thread; the model outlives it.
class StepBatches {
 public:
  StepBatches(std::unique_ptr<Loader> loader, const LanguageModel& model, at::Device device,
              int64_t num_per_step);

  // Those of the next step. What went wrong with the data is thrown here.
  std::vector<StepBatch> take();
  // Call it when the work of a step is given to an accelerator and before waiting for it: the next
  // take() then has nothing to do. On the CPU there is nothing to win, and nothing happens.
  void bring_next();
  void seek(int64_t step);

 private:
  std::vector<StepBatch> next();

  std::unique_ptr<Loader> loader_;
  const LanguageModel& model_;
  at::Device device_;
  int64_t num_per_step_;
  std::vector<StepBatch> brought_;
  std::exception_ptr error_;  // of bringing them: it belongs to the step that takes them
};

}  // namespace fullshard::train
