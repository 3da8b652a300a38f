// SPDX-License-Identifier: Apache-2.0
// A model against what another program computed with the same weights and inputs.
#pragma once

#include <string>
#include <vector>

#include "fullshard/engine/sharded_model.h"
#include "fullshard/formats/tensor_source.h"
#include "fullshard/models/common/language_model.h"

namespace fullshard {

struct Comparison {
  std::string name;     // "logits", "loss", "grad.<parameter>"
  double absolute = 0;  // largest difference; infinity or NaN where one is not finite
  double largest = 0;   // value of the reference
  double relative = 0;  // absolute over largest; of gradients: over at least a thousandth of the
                        // largest of all gradients
};

// Collective. `reference` carries input_ids and what else applies (attention_mask, token_type_ids,
// decoder_input_ids, labels), and of logits, hidden, loss and grad.<name in files> what it has: all
// of it is compared, padding left out. Every rank computes the whole batch. A gradient of a
// parameter that the model lacks or has frozen, a tensor of another shape and position_ids are
// Errors of kind input.
std::vector<Comparison> compare_model(LanguageModel& model, ShardedModel& sharded,
                                      const TensorSource& reference);

}  // namespace fullshard
