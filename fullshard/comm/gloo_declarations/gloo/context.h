// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gloo/transport/device.h"

namespace gloo {

// Only ever handled by pointer; libtorch makes it.
class Context {
 public:
  void setTimeout(std::chrono::milliseconds timeout);
  std::chrono::milliseconds getTimeout() const;
  void closeConnections();
};

}  // namespace gloo
