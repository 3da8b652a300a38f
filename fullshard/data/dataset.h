// SPDX-License-Identifier: Apache-2.0
// A data set of numbered examples, and the order in which a run uses them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "fullshard/data/batch.h"

namespace fullshard {

// Thread-safe for reading; files are mapped, not loaded.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual int64_t size() const = 0;  // examples
  // The examples with these numbers as one batch. `epoch` and `seed` decide what is random in an
  // example itself (masking), by number, so that any split over ranks gives the same.
  virtual TokenBatch batch(std::span<const int64_t> examples, uint64_t seed,
                           int64_t epoch) const = 0;
  // Whether each token of each example is followed by its label, and all examples have one length:
  // whole batches then have as many labels on every rank. A property of the data and not of a
  // batch, since ranks that disagreed about it would wait for each other.
  virtual bool labels_every_token() const { return false; }
  virtual int64_t max_token() const = 0;  // -1 when unknown without reading everything
  virtual std::string describe() const = 0;
  // For several data sets that are mixed: the share and the size of each, which the order of
  // examples depends on. Empty: it is one data set.
  virtual std::string mixture() const { return {}; }
  // What a user who trains on it should know: rows that were cut or left out.
  virtual std::vector<std::string> warnings() const { return {}; }
};

enum class Order { shuffled, sequential };

// What happens to the examples at the end of an epoch that do not fill a batch.
enum class LastBatch { dropped, kept };

// A position in an order: this step begins with this example of this epoch, by its place there.
struct ExamplePlace {
  int64_t step = 0;
  int64_t epoch = 0;
  int64_t example = 0;

  bool operator==(const ExamplePlace&) const = default;
};

// Example numbers of global batch k: a function of (seed, epoch, position) only. An error, which
// says how many examples there are and how many a step needs, where the last partial batch of an
// epoch is dropped and the epoch has no whole one. `start` is the position that steps of another
// size have reached; no step before it may be requested.
class ExampleOrder {
 public:
  ExampleOrder(int64_t num_examples, int64_t global_batch, Order order, uint64_t seed,
               LastBatch last = LastBatch::dropped, const ExamplePlace& start = {});
  int64_t batches_per_epoch() const { return batches_in(num_examples_); }
  ExamplePlace place_of(int64_t step) const;
  // The number of steps until so many epochs are over.
  int64_t steps_of(double epochs) const;
  bool is_whole(int64_t step) const;  // not the partial one of an epoch
  // The examples of global batch `step` (counted over all epochs), in order.
  std::vector<int64_t> examples(int64_t step) const;
  // The examples of one rank's micro-batch: the global batch is split over accumulation steps, then
  // ranks. In a partial batch the later ones have fewer, or none.
  std::vector<int64_t> examples(int64_t step, int64_t accumulation_step, int64_t num_accumulation,
                                int rank, int num_ranks) const;
  int64_t epoch_of(int64_t step) const { return place_of(step).epoch; }
  int64_t num_examples() const { return num_examples_; }
  Order order() const { return order_; }
  uint64_t seed() const { return seed_; }

 private:
  int64_t batches_in(int64_t num_examples) const;

  int64_t num_examples_;
  int64_t global_batch_;
  Order order_;
  uint64_t seed_;
  LastBatch last_;
  ExamplePlace start_;
};

}  // namespace fullshard
