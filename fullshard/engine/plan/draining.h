// SPDX-License-Identifier: Apache-2.0
// Gradient buffers that are reduced here while peers may still read them. Waiting for the peers is
// put off until the memory is wanted again; by then they usually have.
#pragma once

#include <utility>
#include <vector>

#include "fullshard/engine/plan/traffic.h"
#include "fullshard/memory/pool.h"

namespace fullshard::engine {

class Draining {
 public:
  // `works` have their results.
  void add(memory::Block buffer, Works works) {
    buffers_.emplace_back(std::move(buffer), std::move(works));
  }

  // Waits until no peer reads any of them, and gives them back.
  void settle() {
    for (auto& [buffer, works] : buffers_) works.wait();
    buffers_.clear();
  }

 private:
  std::vector<std::pair<memory::Block, Works>> buffers_;
};

}  // namespace fullshard::engine
