// SPDX-License-Identifier: Apache-2.0
// Batches prepared ahead of a training loop.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>

#include "fullshard/data/dataset.h"

namespace fullshard {

// Which micro-batches of each global batch belong to this rank.
struct LoaderOptions {
  uint64_t seed = 0;  // for what is random in an example
  int64_t num_accumulation = 1;
  int rank = 0;
  int num_ranks = 1;
  int num_ahead = 2;  // micro-batches
};

// One background thread makes the next micro-batches while the caller uses the last one. `data`
// must outlive it. next() and seek() belong to one thread.
class Loader {
 public:
  Loader(const Dataset& data, const ExampleOrder& order, const LoaderOptions& options,
         int64_t first_step = 0);
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  // This rank's next micro-batch; if a partial batch leaves it no examples, one without labels:
  // ranks go through their units together. An error that occurred while it was made is thrown here,
  // each time until seek() goes elsewhere.
  TokenBatch next();
  // Makes the first micro-batch of this step the next one.
  void seek(int64_t step);
  // The step of the micro-batch that next() gives.
  int64_t step() const { return position_ / options_.num_accumulation; }
  int64_t accumulation_step() const { return position_ % options_.num_accumulation; }
  bool is_whole_step() const { return order_.is_whole(step()); }
  bool labels_every_token() const { return data_.labels_every_token(); }

 private:
  struct Prepared {
    TokenBatch batch;
    std::exception_ptr error;
  };
  void run();
  Prepared prepare(int64_t position) const;

  const Dataset& data_;
  ExampleOrder order_;
  LoaderOptions options_;
  int64_t position_;  // of the next batch taken: step * num_accumulation + accumulation step

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Prepared> ready_;
  int64_t next_prepared_;
  int64_t generation_ = 0;  // counts seeks: a batch that was begun before one is dropped
  bool stopped_ = false;
  std::thread thread_;
};

}  // namespace fullshard
