// docs/config_support.md, out of the schema.
#pragma once

#include <string>

namespace fullshard {

std::string support_page();

}  // namespace fullshard
