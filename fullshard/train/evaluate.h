// SPDX-License-Identifier: Apache-2.0
// The loss of a model on a data set.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "fullshard/comm/world/world.h"
#include "fullshard/data/dataset.h"
#include "fullshard/models/common/language_model.h"
#include "fullshard/train/class_scores.h"

namespace fullshard {

struct EvaluateOptions {
  int64_t micro_batch = 8;                   // examples of a rank in one forward
  int64_t max_batches = 0;                   // per rank; 0: all
  uint64_t seed = 42;                        // of masks
  std::optional<at::ScalarType> dtype = {};  // of products; absent: the model's own
};

struct EvaluateResult {
  double loss = 0;  // mean over all labels
  int64_t labels = 0;
  int64_t examples = 0;
  std::optional<train::ClassScores> classes = {};  // of a classifier

  double perplexity() const;
};

// Collective. Every example counts once, whatever the number of ranks; the model is left in the
// mode it was in.
EvaluateResult evaluate(LanguageModel& model, const Dataset& data, const World& world,
                        const EvaluateOptions& options);

}  // namespace fullshard
