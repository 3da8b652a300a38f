// SPDX-License-Identifier: Apache-2.0
// What ranks whose output is not shown say of a late one whose output is: that one cannot say it.
#pragma once

#include <set>
#include <string>

namespace fullshard::launch {

class LateLines {
 public:
  explicit LateLines(int shown_rank);

  // A line of another rank: shown on standard error where it is a warning that the shown rank is
  // late, once of all that say the same of it.
  void hear(const std::string& line);

 private:
  std::string of_it_;  // how such a warning goes on where it names the rank
  std::set<std::string> shown_;
};

}  // namespace fullshard::launch
