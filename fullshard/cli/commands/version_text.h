// SPDX-License-Identifier: Apache-2.0
// What this program was built with, for `fullshard --version --verbose`.
#pragma once

#include <string>

namespace fullshard::cli {

// A line for each: version, commit, compiler, options, libtorch, CUDA, libraries, backends.
std::string version_text();

}  // namespace fullshard::cli
