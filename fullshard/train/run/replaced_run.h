// SPDX-License-Identifier: Apache-2.0
// The run that lies in the folder of a new one. It stays as it is until the new one can make steps:
// whatever is wrong with its data, model or settings costs nothing.
#pragma once

#include <string>
#include <vector>

namespace fullshard::train {

// Rank 0's but for what says otherwise. A file in the folder tells ranks that are started again
// whether an earlier start of their job came to removing it: else the checkpoints there are not
// theirs.
class ReplacedRun {
 public:
  explicit ReplacedRun(std::string folder);

  // True after intend(true) until remove(), also in a process that comes after this one.
  bool is_there() const;
  // What this job means to do with it; not for ranks that were started again.
  void intend(bool replaces);
  // Its records, and with `replaces` its checkpoints and results too, but for folders in which one
  // of the paths lies that the new run reads.
  void remove(bool replaces, const std::vector<std::string>& read_paths);
  // Its checkpoints alone, but for those: on the disk of a host without rank 0, any rank's.
  void remove_checkpoints(const std::vector<std::string>& read_paths) const;

 private:
  std::string folder_, mark_;
};

}  // namespace fullshard::train
