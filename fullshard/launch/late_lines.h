// SPDX-License-Identifier: Apache-2.0
// Shows warnings of ranks whose output is not shown about a late rank whose output is: the late
// rank cannot report itself.
#pragma once

#include <set>
#include <string>

namespace fullshard::launch {

class LateLines {
 public:
  explicit LateLines(int shown_rank);

  // Takes a line of another rank. A warning that the shown rank is late goes to standard error,
  // once when several ranks say the same.
  void hear(const std::string& line);

 private:
  std::string of_it_;  // the part of such a warning that names the shown rank
  std::set<std::string> shown_;
};

}  // namespace fullshard::launch
