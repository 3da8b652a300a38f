// SPDX-License-Identifier: Apache-2.0
#include "fullshard/base/error.h"
#include "fullshard/comm/gpu/nccl_backend.h"

namespace fullshard::comm {

bool is_built_with_nccl() { return false; }

std::shared_ptr<Backend> make_nccl_backend(std::shared_ptr<Backend>, const NcclOptions& options) {
  fail("group {}: this build of Fullshard has no CUDA; build with the preset cuda", options.group);
}

}  // namespace fullshard::comm
