// Masters that are kept in halves, whole and writable while it lives.
#pragma once

#include "fullshard/shard/engine.h"

namespace fullshard {

class WholeMasters {
 public:
  explicit WholeMasters(Engine& engine);
  ~WholeMasters();
  WholeMasters(const WholeMasters&) = delete;
  WholeMasters& operator=(const WholeMasters&) = delete;

 private:
  Engine& engine_;
};

}  // namespace fullshard
