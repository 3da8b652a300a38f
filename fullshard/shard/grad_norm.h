// Norms of the reduced gradients over the whole model.
#pragma once

#include <string>

namespace fullshard {

class Engine;

// Collective: one small all-gather over the shards axis. Squares and sums are in fp64; partial sums
// are added in the order (unit, tensor, rank) and the result is rounded once to fp32, so that it
// does not depend on how tensors are cut. docs/memory_layout.md, "Bits".
// Where gradients are not reduced over the ranks, the largest of their norms: all ranks must come
// to the same decision.
double two_norm(const Engine& engine);
double infinity_norm(const Engine& engine);

// Collective. The first parameter, in the order of the module tree, whose reduced gradient is not
// finite; empty when all are.
std::string first_non_finite_parameter(const Engine& engine);

}  // namespace fullshard
