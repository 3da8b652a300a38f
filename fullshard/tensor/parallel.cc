// SPDX-License-Identifier: Apache-2.0
#include "fullshard/tensor/parallel.h"

#include <ATen/Parallel.h>

#include "fullshard/tensor/pretence.h"

namespace fullshard::tensor {

void parallel_ranges(int64_t size, int64_t grain,
                     const std::function<void(int64_t begin, int64_t end)>& body) {
  if (!is_pretended()) at::parallel_for(0, size, grain, body);
}

}  // namespace fullshard::tensor
