// SPDX-License-Identifier: Apache-2.0
// How a module that is no unit becomes one, in words that a user can type.
#pragma once

#include <string>

namespace torch::nn {
class Module;
}  // namespace torch::nn

namespace fullshard::nn {

// Fits behind "module 'x' is no unit; ": for a class of the user's the macro to write, for one of a
// library's the Wrap to hold it in, for a container, which has no forward to surround, what to hold
// in its place.
std::string how_to_make_unit(const torch::nn::Module& module);

// For a Unit that was made without its hooks: the line to write.
std::string how_to_run_hooks(const torch::nn::Module& module);

}  // namespace fullshard::nn
