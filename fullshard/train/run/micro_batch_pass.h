// SPDX-License-Identifier: Apache-2.0
// The forward and backward of a micro-batch. Where the host takes longer to issue them than the GPU
// to run them, and nothing but the values of the batch changes, they become a CUDA graph.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fullshard/engine/sharded_model.h"
#include "fullshard/memory/device_graph.h"
#include "fullshard/models/common/language_model.h"
#include "fullshard/optim/stepper.h"

namespace fullshard::train {

class MicroBatchPass {
 public:
  // All of these outlive it. Without `may_repeat` nothing is ever captured.
  MicroBatchPass(LanguageModel& model, ShardedModel sharded, Stepper& stepper, bool may_repeat);
  ~MicroBatchPass();

  // The mean loss times `weight`; its gradients are with the engine.
  at::Tensor run(ModelInputs inputs, double weight);
  // The same, issued one by one, with `after_forward` between the two passes.
  at::Tensor run_in_parts(const ModelInputs& inputs, double weight,
                          const std::function<void()>& after_forward);

  int64_t num_repeated() const { return num_repeated_; }  // by graphs
  // Why nothing is captured; empty: something is, or it is not known yet.
  const std::string& why_not() const { return why_not_; }

 private:
  // What decides which work is issued, beside the values of tensors.
  struct Shape {
    std::vector<std::vector<int64_t>> sizes;  // and dtype, of every tensor; empty: not given
    bool labels_are_next = false;
    double label_smoothing = 0;
    int64_t num_labels = -1;  // where that decides on anything
    double loss_factor = 1;
    bool adds = false;  // to gradients of earlier micro-batches
    bool trains = true;
    std::vector<int64_t> longest_documents{};  // of the layouts without padding

    bool operator==(const Shape&) const = default;
  };
  struct Known;

  using Issue = std::function<at::Tensor()>;  // the passes, one by one
  at::Tensor run_timed(Known& known, const Issue& issue);
  at::Tensor repeat(Known& known, const ModelInputs& inputs, double weight);
  void capture(Known& known, const ModelInputs& inputs);
  Shape shape_of(const ModelInputs& inputs) const;
  Known& known_of(const Shape& shape);
  const Known* any_captured() const;
  bool has_moved() const;
  bool is_worth_capturing(Known& known) const;
  bool comes_after_its_neighbour(const Known& known) const;
  bool has_room_for_graph(const Known& known) const;
  int64_t random_offset() const;
  void give_up(const std::string& why);
  void forget_graphs();

  LanguageModel& model_;
  ShardedModel sharded_;
  Stepper& stepper_;
  at::Device device_;
  std::vector<std::unique_ptr<Known>> known_;  // few, the last ones seen at the end
  std::string why_not_;
  int64_t num_repeated_ = 0;
};

}  // namespace fullshard::train
