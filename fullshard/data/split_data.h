// SPDX-License-Identifier: Apache-2.0
// A share of a data set held out for evaluation.
#pragma once

#include <cstdint>
#include <memory>

#include "fullshard/data/dataset.h"

namespace fullshard::data {

struct SplitData {
  std::unique_ptr<Dataset> rest;
  std::unique_ptr<Dataset> held_out;
};

// Holds out `share` of the examples, rounded, at least one; which ones is a function of their
// number and the seed. Both parts keep the order. Data with one example, and a share that leaves
// nothing, are an Error of the kind `input`.
SplitData split_data(std::unique_ptr<Dataset> data, double share, uint64_t seed);

}  // namespace fullshard::data
