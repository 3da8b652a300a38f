// SPDX-License-Identifier: Apache-2.0
// Weights that hold infinities or values that are not numbers: nothing can be learnt from there.
#pragma once

#include <string>

namespace fullshard::engine {

class Engine;

// Collective. The first parameter, in the order of the module tree, frozen ones among them, whose
// master is not finite on any rank; empty when all are. Reads every weight once.
std::string first_non_finite_master(const Engine& engine);

}  // namespace fullshard::engine
