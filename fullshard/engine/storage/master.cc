// SPDX-License-Identifier: Apache-2.0
#include "fullshard/engine/storage/master.h"

#include <ATen/ops/where.h>
#include <c10/core/ScalarType.h>

#include <utility>

#include "fullshard/engine/storage/halved_master.h"
#include "fullshard/engine/storage/plain_master.h"

namespace fullshard::engine {

memory::Block MasterPlace::take_from(memory::Pool& pool) const {
  return pool.take(numel * static_cast<int64_t>(c10::elementSize(dtype)), purpose);
}

std::unique_ptr<Master> make_master(MasterPlace place, bool in_halves) {
  if (in_halves) return std::make_unique<HalvedMaster>(std::move(place));
  return std::make_unique<PlainMaster>(std::move(place));
}

void keep_untouched(const at::Tensor& master, const at::Tensor& seen, const at::Tensor& written) {
  const auto here = written.to(master.device());
  master.copy_(at::where(here.eq(seen), master, here.to(master.scalar_type())));
}

}  // namespace fullshard::engine
