// SPDX-License-Identifier: Apache-2.0
#include "fullshard/comm/gpu/ipc_backend.h"

namespace fullshard::comm {

std::shared_ptr<Backend> make_ipc_backend(std::shared_ptr<Backend>, at::Device,
                                          std::shared_ptr<StreamWatch>) {
  return nullptr;
}

}  // namespace fullshard::comm
