// SPDX-License-Identifier: Apache-2.0
#include "fullshard/engine/passes/forward_log.h"

namespace fullshard::engine {
namespace {

// Forwards with gradients that no backward follows would fill it without end. Dropping their order
// changes when a unit is reduced, not what comes out, and every rank drops it at the same call.
constexpr size_t kMostEntries = 1 << 16;

}  // namespace

void ForwardLog::add(Entry entry) {
  if (is_over_ || entries_.size() == kMostEntries) clear();
  entries_.push_back(entry);
}

void ForwardLog::clear() {
  entries_.clear();
  is_over_ = false;
}

}  // namespace fullshard::engine
