// SPDX-License-Identifier: Apache-2.0
// The state of the default random generators as text.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace fullshard::checkpoint {

// Hexadecimal digits of the CPU's generator; behind a blank those of the device's, where that is
// another.
std::string rng_state_text(at::Device device = at::kCPU);
// An error of the kind input when the text is no such state; then nothing is changed. A state that
// was saved on another kind of device restores what both have.
void restore_rng_state(const std::string& text, at::Device device = at::kCPU);

}  // namespace fullshard::checkpoint
