// SPDX-License-Identifier: Apache-2.0
#include "fullshard/tensor/allocation_watch.h"

#include <utility>

namespace fullshard::tensor {
namespace {

// A slot that libtorch leaves to others.
const auto kWatchSlot = c10::DebugInfoKind::TEST_INFO_2;

thread_local int num_unwatched_scopes = 0;

}  // namespace

std::shared_ptr<AllocationWatch> AllocationWatch::current() {
  if (num_unwatched_scopes > 0) return nullptr;
  auto* info = c10::ThreadLocalDebugInfo::get(kWatchSlot);
  return info == nullptr ? nullptr : static_cast<AllocationWatch*>(info)->shared_from_this();
}

WatchScope::WatchScope(std::shared_ptr<AllocationWatch> watch)
    : guard_(kWatchSlot, std::move(watch)) {}

UnwatchedScope::UnwatchedScope() { ++num_unwatched_scopes; }
UnwatchedScope::~UnwatchedScope() { --num_unwatched_scopes; }

}  // namespace fullshard::tensor
