// SPDX-License-Identifier: Apache-2.0
#include "fullshard/data/dataset.h"

#include <algorithm>
#include <numeric>

#include "fullshard/base/error.h"
#include "fullshard/data/permutation.h"

namespace fullshard {

ExampleOrder::ExampleOrder(int64_t num_examples, int64_t global_batch, Order order, uint64_t seed,
                           LastBatch last)
    : num_examples_(num_examples),
      global_batch_(global_batch),
      order_(order),
      seed_(seed),
      last_(last) {
  check(global_batch > 0, "data: a step of {} examples; expected at least 1", global_batch);
  if (num_examples < (last == LastBatch::kept ? 1 : global_batch)) {
    fail_as(ErrorKind::input,
            "data: there are {} examples, but one step takes {}; give more data, or a smaller "
            "micro-batch, accumulation or number of ranks",
            num_examples, global_batch);
  }
}

int64_t ExampleOrder::batches_per_epoch() const {
  const bool has_partial = last_ == LastBatch::kept && num_examples_ % global_batch_ != 0;
  return num_examples_ / global_batch_ + (has_partial ? 1 : 0);
}

bool ExampleOrder::is_whole(int64_t step) const {
  return (step % batches_per_epoch() + 1) * global_batch_ <= num_examples_;
}

int64_t ExampleOrder::epoch_of(int64_t step) const { return step / batches_per_epoch(); }

std::vector<int64_t> ExampleOrder::examples(int64_t step) const {
  return examples(step, 0, 1, 0, 1);
}

std::vector<int64_t> ExampleOrder::examples(int64_t step, int64_t accumulation_step,
                                            int64_t num_accumulation, int rank,
                                            int num_ranks) const {
  const int64_t num_parts = num_accumulation * num_ranks;
  check(num_parts > 0 && global_batch_ % num_parts == 0,
        "data: a step of {} examples cannot be split evenly over {} accumulation steps of {} ranks",
        global_batch_, num_accumulation, num_ranks);
  check(accumulation_step >= 0 && accumulation_step < num_accumulation && rank >= 0 &&
            rank < num_ranks && step >= 0,
        "data: no step {}, accumulation step {} of {}, rank {} of {}", step, accumulation_step,
        num_accumulation, rank, num_ranks);
  const int64_t rows = global_batch_ / num_parts;
  const int64_t first =
      step % batches_per_epoch() * global_batch_ + (accumulation_step * num_ranks + rank) * rows;
  std::vector<int64_t> numbers(
      static_cast<size_t>(std::clamp<int64_t>(num_examples_ - first, 0, rows)));
  std::iota(numbers.begin(), numbers.end(), first);
  if (order_ == Order::shuffled) {
    const data::Permutation shuffled(num_examples_, seed_, epoch_of(step));
    for (int64_t& number : numbers) number = shuffled(number);
  }
  return numbers;
}

}  // namespace fullshard
