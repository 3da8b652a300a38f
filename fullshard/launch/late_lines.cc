// SPDX-License-Identifier: Apache-2.0
#include "fullshard/launch/late_lines.h"

#include <fmt/format.h>

#include "fullshard/base/standard_streams.h"

namespace fullshard::launch {

// comm/late_notice writes "warning: rank 1: barrier (group world, sequence 3) has waited 5 s for
// rank 0; its last act: …".
LateLines::LateLines(int shown_rank) : of_it_(fmt::format(" s for rank {}; ", shown_rank)) {}

void LateLines::hear(const std::string& line) {
  if (!line.starts_with("warning: rank ")) return;
  const size_t waited = line.find(" has waited ");
  const size_t said_of_it = line.find(of_it_, waited);
  if (waited == std::string::npos || said_of_it == std::string::npos) return;
  if (shown_.insert(line.substr(said_of_it)).second) base::say(line + "\n");
}

}  // namespace fullshard::launch
