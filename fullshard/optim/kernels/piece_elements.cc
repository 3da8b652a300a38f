// SPDX-License-Identifier: Apache-2.0
#include "fullshard/optim/kernels/piece_elements.h"

#include <cstddef>

namespace fullshard::optim {

Elements Elements::from(int64_t first) const {
  if (!data) return {};
  return {static_cast<std::byte*>(data) + first * static_cast<int64_t>(c10::elementSize(dtype)),
          dtype};
}

}  // namespace fullshard::optim
