// SPDX-License-Identifier: Apache-2.0
#include "fullshard/simulation/given_file.h"

#include <fmt/format.h>

#include "fullshard/base/error.h"
#include "fullshard/base/text_file.h"

namespace fullshard::simulation {

std::optional<std::string> read_given_file(const std::string& path, const std::string& flag) {
  try {
    return base::find_text_file(path);
  } catch (const Error& error) {
    fail_as(ErrorKind::usage, "{}: {}", flag, error.what());
  }
}

}  // namespace fullshard::simulation
