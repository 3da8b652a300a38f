// SPDX-License-Identifier: Apache-2.0
// Generates docs/config_support.md from the schema.
#pragma once

#include <string>

namespace fullshard::config {

std::string support_page();

}  // namespace fullshard::config
