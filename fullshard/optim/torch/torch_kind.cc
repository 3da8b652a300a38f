// SPDX-License-Identifier: Apache-2.0
#include "fullshard/optim/torch/torch_kind.h"

#include <c10/util/Type.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <utility>

#include "fullshard/base/error.h"

namespace fullshard::optim {
namespace {

namespace torch_optim = torch::optim;

template <class Kind, class KindOptions, class KindState>
class KnownKind : public TorchKind {
 public:
  struct Field {
    const char* name;
    at::Tensor& (KindState::*get)() noexcept;
    bool (*is_used)(const KindOptions& options);
  };

  KnownKind(std::string name, std::vector<Field> fields)
      : name_(std::move(name)), fields_(std::move(fields)) {}

  bool is(const torch_optim::Optimizer& optimizer) const override {
    return typeid(optimizer) == typeid(Kind);
  }
  std::string name() const override { return name_; }

  std::vector<std::string> states(const Options& options) const override {
    std::vector<std::string> names;
    for (const auto& field : fields_) {
      if (field.is_used(static_cast<const KindOptions&>(options))) names.emplace_back(field.name);
    }
    return names;
  }

  std::map<std::string, at::Tensor*> tensors(State& state) const override {
    std::map<std::string, at::Tensor*> found;
    for (const auto& field : fields_) {
      found[field.name] = &(static_cast<KindState&>(state).*field.get)();
    }
    return found;
  }

  int64_t* step(State& state) const override {
    if constexpr (requires(KindState & typed) { typed.step(); }) {
      return &static_cast<KindState&>(state).step();
    } else {
      return nullptr;
    }
  }

  std::unique_ptr<State> make() const override { return std::make_unique<KindState>(); }

 private:
  std::string name_;
  std::vector<Field> fields_;
};

template <class Options>
bool always(const Options&) {
  return true;
}
template <class Options>
bool with_amsgrad(const Options& options) {
  return options.amsgrad();
}
template <class Options>
bool with_momentum(const Options& options) {
  return options.momentum() != 0;
}
bool when_centered(const torch_optim::RMSpropOptions& options) { return options.centered(); }

template <class Kind, class Options, class State>
std::unique_ptr<TorchKind> adam_kind(const char* name) {
  using Known = KnownKind<Kind, Options, State>;
  return std::make_unique<Known>(
      name, std::vector<typename Known::Field>{
                {"exp_avg", &State::exp_avg, always<Options>},
                {"exp_avg_sq", &State::exp_avg_sq, always<Options>},
                {"max_exp_avg_sq", &State::max_exp_avg_sq, with_amsgrad<Options>}});
}

std::unique_ptr<TorchKind> sgd_kind() {
  using State = torch_optim::SGDParamState;
  using Options = torch_optim::SGDOptions;
  using Known = KnownKind<torch_optim::SGD, Options, State>;
  return std::make_unique<Known>(
      "torch::optim::SGD", std::vector<Known::Field>{{"momentum_buffer", &State::momentum_buffer,
                                                      with_momentum<Options>}});
}

std::unique_ptr<TorchKind> adagrad_kind() {
  using State = torch_optim::AdagradParamState;
  using Options = torch_optim::AdagradOptions;
  using Known = KnownKind<torch_optim::Adagrad, Options, State>;
  return std::make_unique<Known>("torch::optim::Adagrad",
                                 std::vector<Known::Field>{{"sum", &State::sum, always<Options>}});
}

std::unique_ptr<TorchKind> rmsprop_kind() {
  using State = torch_optim::RMSpropParamState;
  using Options = torch_optim::RMSpropOptions;
  using Known = KnownKind<torch_optim::RMSprop, Options, State>;
  return std::make_unique<Known>(
      "torch::optim::RMSprop",
      std::vector<Known::Field>{
          {"square_avg", &State::square_avg, always<Options>},
          {"momentum_buffer", &State::momentum_buffer, with_momentum<Options>},
          {"grad_avg", &State::grad_avg, when_centered}});
}

}  // namespace

std::unique_ptr<TorchKind> torch_kind_of(const torch_optim::Optimizer& optimizer) {
  std::vector<std::unique_ptr<TorchKind>> known;
  known.push_back(sgd_kind());
  known.push_back(
      adam_kind<torch_optim::Adam, torch_optim::AdamOptions, torch_optim::AdamParamState>(
          "torch::optim::Adam"));
  known.push_back(
      adam_kind<torch_optim::AdamW, torch_optim::AdamWOptions, torch_optim::AdamWParamState>(
          "torch::optim::AdamW"));
  known.push_back(adagrad_kind());
  known.push_back(rmsprop_kind());
  for (auto& kind : known) {
    if (kind->is(optimizer)) return std::move(kind);
  }
  fail_as(ErrorKind::usage,
          "checkpoint: the states of {} cannot be saved: what they mean is known of torch::optim's "
          "SGD, Adam, AdamW, Adagrad and RMSprop only; save the weights without it "
          "(CheckpointOptions::without_optimizer) and its states yourself",
          c10::demangle(typeid(optimizer).name()));
}

}  // namespace fullshard::optim
