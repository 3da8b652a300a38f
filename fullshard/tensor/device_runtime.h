// SPDX-License-Identifier: Apache-2.0
// What kernel_launch.h asks of CUDA's runtime. A build without CUDA has no kernels to launch.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <cstdint>
#include <string>

#include "fullshard/tensor/random_place.h"

struct CUstream_st;  // cudaStream_t points to it

namespace fullshard::tensor {

// Whether kernels of this library can run in this process, plans apart.
bool has_device_kernels();

CUstream_st* native_stream(const c10::Stream& stream);

// What is wrong with the last launch, or with what ran before it; empty: nothing is known.
std::string launch_problem();

// The generator of the device moves on by so many numbers.
RandomPlace draw_random(c10::Device device, int64_t numbers);

}  // namespace fullshard::tensor
