// SPDX-License-Identifier: Apache-2.0
// What a planned run holds at any moment, and what that is at the peak: every allocation is
// reported here, and the ledger has the purposes of the engine's allocations.
#pragma once

#include <array>
#include <mutex>
#include <string>
#include <string_view>

#include "fullshard/engine/passes/present_pass.h"
#include "fullshard/memory/ledger.h"
#include "fullshard/planning/estimate.h"
#include "fullshard/tensor/allocation_watch.h"

namespace fullshard::planning {

// Thread-safe. `device` is where the model computes: what lies on another one is the host's.
class MemoryMeter : public tensor::AllocationWatch {
 public:
  explicit MemoryMeter(at::Device device) : device_(device) {}

  void change(at::Device device, tensor::AllocationKind kind, int64_t bytes) override;

  // The ledger must outlive the last change that it explains.
  void explain_by(const Ledger& ledger);
  // Names what runs from now on outside of units' passes.
  void begin(std::string_view act);
  // What is held now is the memory between steps.
  void note_rest();

  Estimate estimate();  // of the tiers only

 private:
  struct OfTier {
    int64_t held = 0;     // of both kinds
    int64_t tensors = 0;  // of them
    int64_t rest = 0;
    int64_t peak = 0;
    bool is_new_peak = false;  // the ledger has not been asked about it yet
    int64_t tensors_at_peak = 0;
    std::array<int64_t, tiers::kNumPurposes> by_purpose{};
    std::string peak_at{};
  };
  void explain(int tier);
  TierEstimate on_disk() const;
  std::string moment() const;

  at::Device device_;
  std::mutex mutex_;
  const Ledger* ledger_ = nullptr;
  std::string_view act_ = "loading of the weights";
  std::array<OfTier, tiers::kNumTiers> tiers_{};
};

}  // namespace fullshard::planning
