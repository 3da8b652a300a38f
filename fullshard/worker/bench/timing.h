// SPDX-License-Identifier: Apache-2.0
// How the benchmarks of `fullshard bench` take times.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

namespace fullshard::worker {

double median(std::vector<double> values);

// Includes the time until the device is done.
double seconds_of(const std::function<void()>& call, at::Device device);

// Bytes per second, read and written, of copies of `bytes` by as many threads as torch has here; on
// a GPU by the GPU.
double copy_bandwidth(int64_t bytes, int rounds, at::Device device);

}  // namespace fullshard::worker
