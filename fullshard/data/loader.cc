// SPDX-License-Identifier: Apache-2.0
#include "fullshard/data/loader.h"

#include <algorithm>
#include <utility>

#include "fullshard/base/error.h"

namespace fullshard {
namespace {

TokenBatch stand_in(const Dataset& data) {
  TokenBatch batch = data.batch(std::vector<int64_t>{0}, 0, 0);
  std::ranges::fill(batch.labels, -100);
  batch.is_stand_in = true;
  return batch;
}

}  // namespace

Loader::Loader(const Dataset& data, const ExampleOrder& order, const LoaderOptions& options,
               int64_t first_step)
    : data_(data),
      order_(order),
      options_(options),
      position_(first_step * options.num_accumulation),
      next_prepared_(position_) {
  check(options.num_accumulation > 0 && options.num_ahead > 0 && first_step >= 0,
        "data: {} accumulation steps, {} batches ahead from step {}; expected positive numbers",
        options.num_accumulation, options.num_ahead, first_step);
  thread_ = std::thread([this] { run(); });
}

Loader::~Loader() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

Loader::Prepared Loader::prepare(int64_t position) const {
  Prepared prepared;
  try {
    const int64_t step = position / options_.num_accumulation;
    const auto examples =
        order_.examples(step, position % options_.num_accumulation, options_.num_accumulation,
                        options_.rank, options_.num_ranks);
    prepared.batch = examples.empty() ? stand_in(data_)
                                      : data_.batch(examples, options_.seed, order_.epoch_of(step));
  } catch (...) {
    prepared.error = std::current_exception();
  }
  return prepared;
}

void Loader::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stopped_ || std::ssize(ready_) < options_.num_ahead; });
    if (stopped_) return;
    const int64_t position = next_prepared_++;
    const int64_t generation = generation_;
    lock.unlock();
    Prepared prepared = prepare(position);
    lock.lock();
    if (generation != generation_) continue;
    ready_.push_back(std::move(prepared));
    changed_.notify_all();
  }
}

TokenBatch Loader::next() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !ready_.empty(); });
  if (ready_.front().error) std::rethrow_exception(ready_.front().error);
  TokenBatch batch = std::move(ready_.front().batch);
  ready_.pop_front();
  ++position_;
  lock.unlock();
  changed_.notify_all();
  return batch;
}

void Loader::seek(int64_t step) {
  check(step >= 0, "data: no step {}", step);
  {
    const std::lock_guard lock(mutex_);
    position_ = step * options_.num_accumulation;
    next_prepared_ = position_;
    ++generation_;
    ready_.clear();
  }
  changed_.notify_all();
}

}  // namespace fullshard
