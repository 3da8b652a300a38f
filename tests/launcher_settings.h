// SPDX-License-Identifier: Apache-2.0
// A launcher's variables without a launcher.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "fullshard/base/launcher_environment.h"

namespace fullshard::testing {

using Settings = std::map<std::string, std::string>;

inline base::LauncherEnvironment told_by(const Settings& settings) {
  return base::LauncherEnvironment::read(
      [&](const std::string& name) -> std::optional<std::string> {
        const auto found = settings.find(name);
        return found == settings.end() ? std::nullopt : std::optional(found->second);
      });
}

}  // namespace fullshard::testing
