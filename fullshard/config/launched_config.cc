#include "fullshard/config/launched_config.h"

#include <fmt/ranges.h>

#include <cstdlib>
#include <sstream>

namespace fullshard {
namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

}  // namespace

std::vector<std::string> LaunchedConfig::variables() const {
  return {"FULLSHARD_CONFIG=" + file, "FULLSHARD_FSDP=" + fsdp,
          "FULLSHARD_FSDP_CONFIG=" + fsdp_config,
          fmt::format("FULLSHARD_SET={}", fmt::join(overrides, "\n")),
          fmt::format("FULLSHARD_ALLOW_UNKNOWN={}", allow_unknown ? "1" : "")};
}

LaunchedConfig launched_config() {
  LaunchedConfig found{.file = variable("FULLSHARD_CONFIG"),
                       .fsdp = variable("FULLSHARD_FSDP"),
                       .fsdp_config = variable("FULLSHARD_FSDP_CONFIG"),
                       .allow_unknown = variable("FULLSHARD_ALLOW_UNKNOWN") == "1"};
  std::istringstream lines(variable("FULLSHARD_SET"));
  for (std::string line; std::getline(lines, line);) {
    if (!line.empty()) found.overrides.push_back(line);
  }
  return found;
}

}  // namespace fullshard
