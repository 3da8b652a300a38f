#include "fullshard/optim/piece_elements.h"

#include <cstddef>

namespace fullshard {

Elements Elements::from(int64_t first) const {
  if (!data) return {};
  return {static_cast<std::byte*>(data) + first * static_cast<int64_t>(c10::elementSize(dtype)),
          dtype};
}

}  // namespace fullshard
