// SPDX-License-Identifier: Apache-2.0
#include "fullshard/data/split_data.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "fullshard/base/error.h"
#include "fullshard/data/permutation.h"
#include "fullshard/data/random.h"

namespace fullshard::data {
namespace {

using Numbers = std::vector<int64_t>;

// Some examples of a data set, or all others.
class SubsetData final : public Dataset {
 public:
  SubsetData(std::shared_ptr<const Dataset> data, std::shared_ptr<const Numbers> held_out,
             bool is_rest)
      : data_(std::move(data)), held_out_(std::move(held_out)), is_rest_(is_rest) {}

  int64_t size() const override {
    return is_rest_ ? data_->size() - std::ssize(*held_out_) : std::ssize(*held_out_);
  }
  TokenBatch batch(std::span<const int64_t> examples, uint64_t seed, int64_t epoch) const override {
    Numbers numbers;
    for (const int64_t example : examples) {
      check(example >= 0 && example < size(), "data: no example {}, there are {}", example, size());
      numbers.push_back(number_of(example));
    }
    return data_->batch(numbers, seed, epoch);
  }
  bool labels_every_token() const override { return data_->labels_every_token(); }
  int64_t max_token() const override { return data_->max_token(); }
  std::string describe() const override {
    return fmt::format("{} of {}", size(), data_->describe());
  }
  std::vector<std::string> warnings() const override {
    return is_rest_ ? data_->warnings() : std::vector<std::string>();
  }

 private:
  int64_t number_of(int64_t example) const {
    if (!is_rest_) return (*held_out_)[static_cast<size_t>(example)];
    // Skips as many examples as are held out before it.
    size_t low = 0, high = held_out_->size();
    while (low < high) {
      const size_t middle = (low + high) / 2;
      const int64_t num_others_before = (*held_out_)[middle] - static_cast<int64_t>(middle);
      if (num_others_before <= example) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return example + static_cast<int64_t>(low);
  }

  std::shared_ptr<const Dataset> data_;
  std::shared_ptr<const Numbers> held_out_;  // ascending
  bool is_rest_;
};

}  // namespace

SplitData split_data(std::unique_ptr<Dataset> data, double share, uint64_t seed) {
  const int64_t size = data->size();
  const auto count = std::max<int64_t>(1, std::llround(share * static_cast<double>(size)));
  if (count >= size) {
    fail_as(ErrorKind::input, "{}: {} of its {} examples would be held out, which leaves none",
            data->describe(), count, size);
  }
  const Permutation order(size, mix_bits(seed, 0x73706c6974), 0);
  Numbers held_out;
  for (int64_t i = 0; i < count; ++i) held_out.push_back(order(i));
  std::ranges::sort(held_out);
  const std::shared_ptr<const Dataset> whole = std::move(data);
  const auto numbers = std::make_shared<const Numbers>(std::move(held_out));
  return {.rest = std::make_unique<SubsetData>(whole, numbers, true),
          .held_out = std::make_unique<SubsetData>(whole, numbers, false)};
}

}  // namespace fullshard::data
