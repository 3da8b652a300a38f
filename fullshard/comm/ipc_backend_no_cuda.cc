#include "fullshard/comm/ipc_backend.h"

namespace fullshard {

std::shared_ptr<Backend> make_ipc_backend(std::shared_ptr<Backend>, at::Device,
                                          std::shared_ptr<StreamWatch>) {
  return nullptr;
}

}  // namespace fullshard
