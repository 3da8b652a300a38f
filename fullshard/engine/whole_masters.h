// SPDX-License-Identifier: Apache-2.0
// Masters that are kept in halves, whole and writable while it lives.
#pragma once

#include "fullshard/engine/engine.h"

namespace fullshard::engine {

class WholeMasters {
 public:
  explicit WholeMasters(Engine& engine);
  ~WholeMasters();
  WholeMasters(const WholeMasters&) = delete;
  WholeMasters& operator=(const WholeMasters&) = delete;

 private:
  Engine& engine_;
};

}  // namespace fullshard::engine
