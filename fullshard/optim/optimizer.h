// SPDX-License-Identifier: Apache-2.0
// What all optimizers over pieces share: states per group, one pass over the shard per step,
// settings that schedules change and that rules vary between parameters.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fullshard/engine/sharded_model.h"
#include "fullshard/optim/cuda/device_step.h"
#include "fullshard/optim/device_pieces.h"
#include "fullshard/optim/kernels/piece_elements.h"
#include "fullshard/optim/parameter_rules.h"
#include "fullshard/optim/state_places.h"

namespace fullshard::engine {
struct StreamedUpdate;
}  // namespace fullshard::engine

namespace fullshard::optim {
class HostStep;
class StateStream;
}  // namespace fullshard::optim

namespace fullshard {

// What an optimizer tells the base class about itself.
struct OptimizerTraits {
  std::string name = {};
  std::vector<std::string> state_names = {};  // as torch's state_dict has them
  double lr = 0;
  double weight_decay = 0;
  std::optional<double> momentum = {};  // momentum, or beta1
  std::optional<double> beta2 = {};
  std::vector<ParameterRule> rules = {};
  at::ScalarType state_dtype = at::kFloat;  // fp32 or bf16; fp64 masters have fp64 states
  uint64_t rounding_seed = 0;               // of the stochastic rounding of bf16 masters
  // A step looks at states more than once, so they cannot pass through windows. Why, for a message.
  std::string needs_all_states = {};
};

// One piece of a step, with the settings that hold for its parameter.
struct PieceUpdate {
  const PieceView& piece;
  const std::vector<at::Tensor>& states;  // this piece's parts
  const ParameterSettings& parameter;
  double factor = 1;  // the gradient is to be multiplied with it
  double lr = 0;
  double weight_decay = 0;
  optim::RoundingKey rounding;

  optim::PieceElements elements() const;
};

// Steps are collective. An optimizer holds the model's handle and keeps its states in the model's
// memory, so that reports see them. One counter of steps serves all parameters.
class Optimizer {
 public:
  virtual ~Optimizer();

  // Updates every parameter that has a gradient, scaled by a pending clip_grad_norm. An error where
  // no backward ran since the last step.
  void step();
  void zero_grad() { model_.zero_grad(); }
  // Collective. clip_grad_norm for loops that do not look at the norm: on a GPU the host does not
  // wait for it, and the next step changes nothing where it is not finite (but counts). The norm
  // of unscaled gradients, where they are. max_norm 0: no clipping.
  at::Tensor clip_without_waiting(double max_norm,
                                  ShardedModel::Norm norm = ShardedModel::Norm::two);

  const std::string& name() const { return traits_.name; }
  // Of the next step.
  double lr() const { return traits_.lr; }
  // What schedules multiply, whenever they are made: the rate that the optimizer was made with, or
  // that set_lr() or a checkpoint gave it since.
  double base_lr() const { return base_lr_; }
  void set_lr(double lr);            // both
  void set_scheduled_lr(double lr);  // lr() alone, as schedules do
  // Momentum of SGD, beta1 of the others; an error where there is none.
  bool has_momentum() const { return traits_.momentum.has_value(); }
  double momentum() const { return traits_.momentum.value_or(0); }
  void set_momentum(double momentum);
  bool has_beta2() const { return traits_.beta2.has_value(); }
  double beta2() const { return traits_.beta2.value_or(0); }
  void set_beta2(double beta2);

  // For checkpoints: states are 1-D, one per name and group of the model, shard_numel(group) long.
  int64_t num_steps() const { return num_steps_; }
  virtual void restore_num_steps(int64_t num_steps);
  const std::vector<std::string>& state_names() const { return traits_.state_names; }
  // Waits for an update under way.
  const at::Tensor& state(int group, int index) const;

 protected:
  Optimizer(ShardedModel model, OptimizerTraits traits);

  // Collective, before the updates of a step.
  virtual void before_updates() {}
  // Writes master, states and shown of the piece.
  virtual void update(const PieceUpdate& update) = 0;
  // The same, to be called by another thread, with the gradient's factor; settings are those of
  // now. Empty: this optimizer has no such step.
  virtual std::function<void(double factor)> deferred_update(const PieceUpdate&) { return {}; }
  // The same for all pieces of a batch that lies on a GPU. An optimizer that has no such step
  // refuses by its name.
  virtual void update_on_device(const optim::DevicePass& pass);

  // Calls `use` with a PieceUpdate for each piece.
  template <class Use>
  void for_each(const std::vector<PieceView>& pieces, double factor, const Use& use) {
    for_each(pieces, states_, factor, use);
  }
  template <class Use>
  void for_each(const std::vector<PieceView>& pieces, const optim::StatePlaces& places,
                double factor, const Use& use);

  // A pass over these pieces; valid until the next step.
  optim::DevicePass device_pass(const std::vector<PieceView>& pieces, double factor,
                                at::Device device) {
    return device_pass(pieces, states_, factor, device);
  }
  optim::DevicePass device_pass(const std::vector<PieceView>& pieces,
                                const optim::StatePlaces& places, double factor, at::Device device);

  ShardedModel& model() { return model_; }
  const ParameterTable& parameters() const { return parameters_; }

 private:
  // What a step is made of that may change before the last of it is issued.
  struct Moment {
    double lr = 0;
    std::optional<double> momentum, beta2;
    int64_t num_steps = 0;
    at::Tensor factor_on_device;
  };
  Moment exchange(const Moment& other);
  // Gives the states' memory back to the model, also where a constructor fails.
  struct StateOwner {
    ShardedModel& model;
    const std::vector<std::vector<at::Tensor>>& states;
    ~StateOwner();
  };

  void make_states();
  void check_usable_in_place() const;
  void update_pieces(const std::vector<PieceView>& pieces, const optim::StatePlaces& places,
                     double factor);
  bool is_stepped_on_host(int group) const;
  engine::StreamedUpdate issue_on_host(int group, const std::vector<PieceView>& pieces,
                                       double factor);
  engine::StreamedUpdate issue_streamed(int group, const std::vector<PieceView>& pieces,
                                        double factor);
  // Kernels on a GPU read masters in halves beside fp32 states.
  ShardedModel::Shown shows() const;

  ShardedModel model_;
  OptimizerTraits traits_;
  double base_lr_;
  ParameterTable parameters_;
  std::vector<std::vector<at::Tensor>> states_;  // [group][state], where they rest
  StateOwner state_owner_{model_, states_};
  optim::DevicePieces device_pieces_;
  at::Tensor factor_on_device_;  // of the step that is issued, instead of the model's
  int64_t num_steps_ = 0;
  std::optional<uint64_t> stepped_version_;  // of the gradients of the last step
  bool steps_in_place_ = false;              // a device updates what rests in host memory
  // Last, so that they end first: both make updates with what stands above.
  std::unique_ptr<optim::StateStream> stream_;  // null: all states on the device
  std::unique_ptr<optim::HostStep> host_step_;  // null: the host updates none of them
};

template <class Use>
void Optimizer::for_each(const std::vector<PieceView>& pieces, const optim::StatePlaces& places,
                         double factor, const Use& use) {
  std::vector<at::Tensor> states;
  for (const auto& piece : pieces) {
    states.clear();
    for (const auto& state : places.arrays(piece.group)) {
      states.push_back(state.narrow(0, piece.offset - places.first(), piece.numel()));
    }
    const auto& settings = parameters_.of(piece.name);
    use(PieceUpdate{
        .piece = piece,
        .states = states,
        .parameter = settings,
        .factor = factor,
        .lr = traits_.lr * settings.lr_scale,
        .weight_decay = settings.weight_decay.value_or(traits_.weight_decay),
        .rounding = optim::RoundingKey::of(traits_.rounding_seed, num_steps_, settings.name_hash)});
  }
}

}  // namespace fullshard
