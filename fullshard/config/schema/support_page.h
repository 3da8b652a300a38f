// SPDX-License-Identifier: Apache-2.0
// docs/config_support.md, out of the schema.
#pragma once

#include <string>

namespace fullshard::config {

std::string support_page();

}  // namespace fullshard::config
