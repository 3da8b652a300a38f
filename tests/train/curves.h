// SPDX-License-Identifier: Apache-2.0
// Runs of the fixtures' models over uneven data, to compare their losses.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "fullshard/comm/world/world.h"
#include "fullshard/data/dataset.h"

namespace fullshard::testing {

inline constexpr int64_t kGlobalBatch = 12;  // for 1, 2, 3 and 4 ranks

// Examples of different lengths with some labels left out: ranks and micro-batches hold different
// numbers of labels.
class UnevenData : public Dataset {
 public:
  // `broken`: the number of an example that cannot be read.
  UnevenData(int64_t vocabulary, bool has_decoder, int64_t broken = -1);

  int64_t size() const override { return 64; }
  int64_t max_token() const override { return vocabulary_ - 1; }
  std::string describe() const override { return "examples of a test"; }
  TokenBatch batch(std::span<const int64_t> examples, uint64_t, int64_t) const override;

 private:
  int64_t token(int64_t example, int64_t column) const;

  int64_t vocabulary_;
  bool has_decoder_;
  int64_t broken_;
};

// 20 steps of a folder of tests/fixtures/models; what rank 0 saw, step by step. Collective.
std::vector<double> losses_on(const World& world, const std::string& folder,
                              const std::string& configuration, int64_t accumulation);
void expect_same_losses(const std::vector<double>& expected, const std::vector<double>& found,
                        double tolerance, const std::string& what);

// The steps that were recorded of a run whose fourth step has an example that cannot be read.
int64_t steps_before_a_broken_example(const World& world);

std::string fsdp_configuration(const std::string& strategy);

}  // namespace fullshard::testing
