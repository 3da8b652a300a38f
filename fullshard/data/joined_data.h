// SPDX-License-Identifier: Apache-2.0
// Several data sets as one: one after the other, or mixed by weights.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "fullshard/data/dataset.h"

namespace fullshard::data {

// One after the other.
class JoinedData final : public Dataset {
 public:
  explicit JoinedData(std::vector<std::unique_ptr<Dataset>> parts);

  int64_t size() const override { return begins_.back(); }
  TokenBatch batch(std::span<const int64_t> examples, uint64_t seed, int64_t epoch) const override;
  bool labels_every_token() const override;
  int64_t max_token() const override;
  std::string describe() const override;
  std::vector<std::string> warnings() const override;

 private:
  std::vector<std::unique_ptr<Dataset>> parts_;
  std::vector<int64_t> begins_;  // of each part, and the end
};

struct WeightedData {
  std::unique_ptr<Dataset> data;
  double weight = 1;
};

// Mixed: an epoch has as many places as all parts have examples together, and the part of each
// place is drawn by the weights. A part gives its examples in an order drawn by (seed, pass),
// continues in the next epoch where it stopped, and starts again after its last one. All of it is a
// function of (seed, epoch, place).
class MixedData final : public Dataset {
 public:
  // `asked` is the order that the user wants; any but `shuffled` gives a warning.
  MixedData(std::vector<WeightedData> parts, uint64_t seed, Order asked = Order::shuffled);

  int64_t size() const override { return size_; }
  TokenBatch batch(std::span<const int64_t> examples, uint64_t seed, int64_t epoch) const override;
  bool labels_every_token() const override;
  int64_t max_token() const override;
  std::string describe() const override;
  std::string mixture() const override;
  std::vector<std::string> warnings() const override;

  struct Place {
    size_t part = 0;
    int64_t example = 0;
  };
  Place place(int64_t number, int64_t epoch) const;

 private:
  double share_of(size_t part) const { return bounds_[part] - (part == 0 ? 0 : bounds_[part - 1]); }
  size_t part_of(int64_t number) const;
  int64_t num_before(size_t part, int64_t number) const;

  std::vector<WeightedData> parts_;
  uint64_t seed_;
  Order asked_;
  int64_t size_ = 0;
  std::vector<double> bounds_;   // of each part's share of [0, 1)
  std::vector<int64_t> counts_;  // places of each part before each block of places
  std::vector<int64_t> totals_;  // places of each part in an epoch
};

}  // namespace fullshard::data
