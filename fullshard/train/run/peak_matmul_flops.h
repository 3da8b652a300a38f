// SPDX-License-Identifier: Apache-2.0
// How many operations a second this rank's matrix products reach at best: what MFU is measured
// against.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

namespace fullshard::train {

// Times a few products of square matrices on the device. On a CPU it is the best of the three
// layouts that training has, because libtorch's fp16 products there are some times faster with a
// weight turned than without. Some tenths of a second, also where 16-bit products are a hundred
// times slower than fp32's.
double measure_peak_matmul_flops(at::ScalarType dtype, at::Device device);

// The shortest of a few measurements, each of which says how long it took; of as many as fill
// `least_spent` seconds, where that is more.
double best_of_repetitions(const std::function<double()>& seconds, double least_spent);

}  // namespace fullshard::train
