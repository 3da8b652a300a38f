// SPDX-License-Identifier: Apache-2.0
// A number that stands for a tensor's bits: equal bits give equal numbers on every machine, and
// different bits, NaN and signed zeros among them, different ones but for one chance in 2^64.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

namespace fullshard::engine {

// Of the elements in row-major order, whatever their strides. One pass, on all threads.
uint64_t hash_values(const at::Tensor& tensor);

// Of numbers in their order.
uint64_t hash_numbers(std::span<const uint64_t> numbers);

}  // namespace fullshard::engine
