// SPDX-License-Identifier: Apache-2.0
// What torch's own optimizers keep for a parameter: which tensors, under which names, with which
// options.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace torch::optim {
class Optimizer;
class OptimizerOptions;
class OptimizerParamState;
}  // namespace torch::optim

namespace fullshard::optim {

class TorchKind {
 public:
  using Options = torch::optim::OptimizerOptions;
  using State = torch::optim::OptimizerParamState;

  virtual ~TorchKind() = default;

  virtual bool is(const torch::optim::Optimizer& optimizer) const = 0;
  virtual std::string name() const = 0;  // "torch::optim::AdamW"
  // Their names: one value per element of the parameter.
  virtual std::vector<std::string> states(const Options& options) const = 0;
  virtual std::map<std::string, at::Tensor*> tensors(State& state) const = 0;
  virtual int64_t* step(State& state) const = 0;  // null: it does not count
  virtual std::unique_ptr<State> make() const = 0;
};

// Of SGD, Adam, AdamW, Adagrad and RMSprop; an error (kind usage) that names any other.
std::unique_ptr<TorchKind> torch_kind_of(const torch::optim::Optimizer& optimizer);

}  // namespace fullshard::optim
