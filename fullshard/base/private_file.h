// SPDX-License-Identifier: Apache-2.0
// A secret in a file.
#pragma once

#include <string>

namespace fullshard::base {

// Its first line. An Error unless the file belongs to this user and nobody else may read it.
std::string read_private_line(const std::string& path);

}  // namespace fullshard::base
