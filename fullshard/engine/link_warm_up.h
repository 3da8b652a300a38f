// SPDX-License-Identifier: Apache-2.0
// Links between GPUs make their buffers when a message first wants them. That should be before
// training has filled the memory, not in the middle of its first step.
#pragma once

#include "fullshard/engine/engine.h"

namespace fullshard::engine {

// Bytes of the largest gather and the largest reduction of any unit, and of the largest sum over
// replicas where that is a stage of its own.
struct LargestMessages {
  int64_t gathered = 0;
  int64_t reduced = 0;
  int64_t summed = 0;
};
LargestMessages largest_messages(const Engine& engine);

// Sends one message of that size through each group that a step uses; nothing without GPUs.
// Collective.
void warm_up_links(const Engine& engine);

}  // namespace fullshard::engine
