// SPDX-License-Identifier: Apache-2.0
#include "fullshard/data/dataset.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "fullshard/base/error.h"
#include "fullshard/data/permutation.h"

namespace fullshard {

ExampleOrder::ExampleOrder(int64_t num_examples, int64_t global_batch, Order order, uint64_t seed,
                           LastBatch last, const ExamplePlace& start)
    : num_examples_(num_examples),
      global_batch_(global_batch),
      order_(order),
      seed_(seed),
      last_(last),
      start_(start) {
  check(global_batch > 0, "data: a step of {} examples; expected at least 1", global_batch);
  if (num_examples < (last == LastBatch::kept ? 1 : global_batch)) {
    fail_as(ErrorKind::input,
            "data: there are {} examples, but one step takes {}; give more data, or a smaller "
            "micro-batch, accumulation or number of ranks",
            num_examples, global_batch);
  }
}

int64_t ExampleOrder::batches_in(int64_t num_examples) const {
  const bool has_partial = last_ == LastBatch::kept && num_examples % global_batch_ != 0;
  return num_examples / global_batch_ + (has_partial ? 1 : 0);
}

ExamplePlace ExampleOrder::place_of(int64_t step) const {
  const int64_t rest = batches_in(std::max<int64_t>(num_examples_ - start_.example, 0));
  const int64_t later = step - start_.step;
  if (later < rest) return {step, start_.epoch, start_.example + later * global_batch_};
  const int64_t each = batches_per_epoch(), beyond = later - rest;
  return {step, start_.epoch + 1 + beyond / each, beyond % each * global_batch_};
}

int64_t ExampleOrder::steps_of(double epochs) const {
  const auto each = static_cast<double>(batches_per_epoch());
  const bool is_from_the_first = start_ == ExamplePlace{};
  if (is_from_the_first) return static_cast<int64_t>(std::ceil(epochs * each));
  const auto later = static_cast<double>(start_.epoch + 1);
  const int64_t rest = batches_in(std::max<int64_t>(num_examples_ - start_.example, 0));
  if (epochs >= later) {
    return start_.step + rest + static_cast<int64_t>(std::ceil((epochs - later) * each));
  }
  const double left = epochs * static_cast<double>(num_examples_) -
                      static_cast<double>(start_.epoch) * static_cast<double>(num_examples_) -
                      static_cast<double>(start_.example);
  const double steps = std::ceil(std::max(left, 0.0) / static_cast<double>(global_batch_));
  return start_.step + std::min(rest, static_cast<int64_t>(steps));
}

bool ExampleOrder::is_whole(int64_t step) const {
  return place_of(step).example + global_batch_ <= num_examples_;
}

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
            rank < num_ranks && step >= start_.step,
        "data: no step {}, accumulation step {} of {}, rank {} of {}", step, accumulation_step,
        num_accumulation, rank, num_ranks);
  const int64_t rows = global_batch_ / num_parts;
  const ExamplePlace place = place_of(step);
  const int64_t first = place.example + (accumulation_step * num_ranks + rank) * rows;
  std::vector<int64_t> numbers(
      static_cast<size_t>(std::clamp<int64_t>(num_examples_ - first, 0, rows)));
  std::iota(numbers.begin(), numbers.end(), first);
  if (order_ == Order::shuffled) {
    const data::Permutation shuffled(num_examples_, seed_, place.epoch);
    for (int64_t& number : numbers) number = shuffled(number);
  }
  return numbers;
}

}  // namespace fullshard
