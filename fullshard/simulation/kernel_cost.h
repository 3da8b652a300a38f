// SPDX-License-Identifier: Apache-2.0
// How long a kernel takes: as it was timed, else by the roofline of what the GPU sustains.
#pragma once

#include "fullshard/simulation/cluster.h"
#include "fullshard/simulation/kernel_table.h"
#include "fullshard/tensor/operator_watch.h"

namespace fullshard::simulation {

// Kernels follow each other at this distance (docs/cuda.md, "The step").
inline constexpr double kKernelGap = 1.4e-6;
// The share of a data sheet's memory bandwidth that kernels reach.
inline constexpr double kMemoryShare = 0.9;
// fp32 products without TF32, of the rate in bf16: 67 of 989 TFLOP/s.
inline constexpr double kFp32Share = 1.0 / 15;

// Includes the gap before the kernel; a copy over the bus has none.
double seconds_of(const tensor::OperatorCall& call, const Cluster& cluster,
                  const KernelTable& table);

// By how much the slowest of `ranks` GPUs is slower than the mean, for which all others wait: their
// speeds are spread as a normal distribution is. 1 for one of them.
double slowest_factor(const Cluster& cluster, int ranks);

}  // namespace fullshard::simulation
