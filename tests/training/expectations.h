// SPDX-License-Identifier: Apache-2.0
// How outcomes of training are compared.
#pragma once

#include <string>

#include "tests/training/tiny_training.h"

namespace fullshard::testing {

// Losses, norms and, tensor by tensor, parameters within a relative difference.
void expect_close(const Outcome& actual, const Outcome& expected, double relative);
void expect_same_bits(const Outcome& actual, const Outcome& expected, const std::string& what);

}  // namespace fullshard::testing
