// A copy of what a rank is about to write, so that training may go on meanwhile.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "fullshard/checkpoint/save_plan.h"

namespace fullshard {

// Keeps its memory from one save to the next: only the first pays for getting it.
class Snapshot {
 public:
  // Copies the files' content and makes them look at the copy.
  void take(std::vector<SavePlan::OwnFile>& files);
  int64_t bytes() const;

 private:
  std::vector<at::Tensor> buffers_;  // one per file
};

}  // namespace fullshard
