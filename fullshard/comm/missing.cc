// SPDX-License-Identifier: Apache-2.0
#include "fullshard/comm/missing.h"

#include <fmt/format.h>

#include <sstream>
#include <utility>

#include "fullshard/comm/call_terms.h"

namespace fullshard::comm {

std::string one_line(std::string text) {
  for (char& letter : text) {
    if (letter == '\n') letter = ' ';
  }
  return text;
}

std::string Missing::message(int own_rank, const Call& call) const {
  return message(own_rank,
                 fmt::format("rank {}: {} (group {}, sequence {})", own_rank,
                             describe_call(call.operation, call.unit), call.group, call.sequence));
}

std::string Missing::message(int own_rank, const std::string& subject) const {
  if (rank == own_rank) {
    return fmt::format("{} comes too late: the other ranks have given this one up, which {}; {}",
                       subject, how, hint);
  }
  return fmt::format("{} waits for rank {}, which {}; {}; {}", subject, rank, how, last, hint);
}

std::string Missing::encoded() const {
  return fmt::format("{}\n{}\n{}\n{}", rank, one_line(last), one_line(hint), one_line(how));
}

Missing Missing::decoded(const std::string& text) {
  std::istringstream lines(text);
  Missing missing;
  std::string rank;
  std::getline(lines, rank);
  missing.rank = std::stoi(rank);
  std::getline(lines, missing.last);
  std::getline(lines, missing.hint);
  std::getline(lines, missing.how);
  return missing;
}

}  // namespace fullshard::comm
