// Norms of the reduced gradients over the whole model.
#pragma once

namespace fullshard {

class Engine;

// Collective: one small all-gather over the shards axis. Squares and sums are in fp64; partial sums
// are added in the order (unit, tensor, rank) and the result is rounded once to fp32, so that it
// does not depend on how tensors are cut. docs/memory_layout.md, "Bits".
double two_norm(const Engine& engine);
double infinity_norm(const Engine& engine);

}  // namespace fullshard
