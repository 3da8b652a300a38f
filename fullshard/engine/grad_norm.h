// SPDX-License-Identifier: Apache-2.0
// Norms of the reduced gradients over the whole model.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "fullshard/engine/gradients/device_norm_kernels.h"

namespace fullshard::engine {

class Engine;
class NormRiders;

// Collective: one small all-gather over the shards axis. Squares and sums are in fp64; partial sums
// are added in the order (unit, tensor, rank) and the result is rounded once to fp32, so that it
// does not depend on how tensors are cut. docs/architecture.md, "Bits".
// On a GPU the sum of one piece is added in the order of its thread blocks: the same in every run,
// but cut elsewhere it may differ beyond fp64's fifteenth digit. It is the only wait of a step.
// Where gradients are not reduced over the ranks, the largest of their norms: all ranks must come
// to the same decision.
// `riders`, if there are any, are taken along where the message goes to all ranks.
double two_norm(const Engine& engine, NormRiders* riders = nullptr);
double infinity_norm(const Engine& engine, NormRiders* riders = nullptr);

// Collective, where gradients are on a GPU: fp64 [2] on the device, the norm of unscaled gradients
// and the factor for gradients (clip / loss_scale; NaN when the norm is not finite). Nothing waits
// for the device. max_norm 0: no clipping.
at::Tensor clip_factor(const Engine& engine, NormKind kind, double max_norm, double loss_scale);

// Collective. The first parameter, in the order of the module tree, whose reduced gradient is not
// finite; empty when all are.
std::string first_non_finite_parameter(const Engine& engine);

}  // namespace fullshard::engine
