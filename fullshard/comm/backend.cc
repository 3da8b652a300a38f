// SPDX-License-Identifier: Apache-2.0
#include "fullshard/comm/backend.h"

#include "fullshard/base/error.h"

namespace fullshard::comm {

at::Tensor Backend::allocate_common(int64_t, at::ScalarType) {
  fail("allocate_common: ranks of backend {} do not share memory; ask shares_memory() first",
       name());
}

std::shared_ptr<SharedCounters> Backend::make_counters(int) {
  fail("make_counters: ranks of backend {} do not share memory; ask shares_memory() first", name());
}

}  // namespace fullshard::comm
