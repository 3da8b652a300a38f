// SPDX-License-Identifier: Apache-2.0
// torch's optimizers number parameters: 0, 1, … through all groups, in the order in which they were
// given. Which parameter of a model a number means follows from the order of the model's and from
// how programs make groups of them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fullshard/formats/torch/optimizer_file.h"

namespace fullshard::checkpoint {

// A parameter that is trained, as files hold it.
struct OrderedParameter {
  std::string name;
  std::vector<int64_t> shape;
};

// Whether the Trainer's AdamW lets it decay.
bool decays_in_trainer(const OrderedParameter& parameter);

struct NumberedNames {
  std::vector<std::string> names;  // [number]
  std::string problem;             // why there are none; empty: there are
};

// `parameters` in the order in which the model's tree has them. Known are one group of all, and
// two: what decays, then what does not, as the Trainer, scripts of transformers and nanoGPT divide
// them. Numbers and shapes must agree with the file's.
NumberedNames name_numbers(const formats::OptimizerFile& file,
                           const std::vector<OrderedParameter>& parameters);

}  // namespace fullshard::checkpoint
