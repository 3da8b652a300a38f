// SPDX-License-Identifier: Apache-2.0
#include "fullshard/optim/optimizer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "fullshard/base/error.h"
#include "fullshard/engine/engine_access.h"
#include "fullshard/engine/grad_norm.h"
#include "fullshard/memory/device_memory.h"
#include "fullshard/optim/host_step.h"
#include "fullshard/optim/kernels/setting_checks.h"
#include "fullshard/optim/state_stream.h"
#include "fullshard/optim/streamed_arrays.h"

namespace fullshard {
namespace {

void check_traits(const OptimizerTraits& traits) {
  optim::check_at_least_zero(traits.name, "lr", traits.lr);
  optim::check_at_least_zero(traits.name, "weight_decay", traits.weight_decay);
  check(traits.state_dtype == at::kFloat || traits.state_dtype == at::kBFloat16,
        "{}: state_dtype is {}, expected Float or BFloat16", traits.name,
        c10::toString(traits.state_dtype));
}

at::ScalarType state_dtype(const ShardedModel& model, int group, const OptimizerTraits& traits) {
  const auto master =
      engine::EngineAccess::of(model).trainable_groups().at(group)->spec().master_dtype;
  return master == at::kDouble ? at::kDouble : traits.state_dtype;
}

optim::Elements elements_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return {};
  return {tensor.data_ptr(), tensor.scalar_type()};
}

}  // namespace

optim::PieceElements PieceUpdate::elements() const {
  optim::PieceElements elements;
  elements.master = elements_of(piece.master);
  elements.gradient = elements_of(piece.gradient);
  elements.shown = elements_of(piece.shown);
  if (piece.lower.defined()) elements.lower = static_cast<uint16_t*>(piece.lower.data_ptr());
  for (size_t i = 0; i < states.size(); ++i) elements.states.at(i) = elements_of(states[i]);
  elements.numel = piece.numel();
  elements.first = piece.begin;
  elements.rounding = rounding;
  return elements;
}

Optimizer::Optimizer(ShardedModel model, OptimizerTraits traits)
    : model_((check_traits(traits), std::move(model))),
      traits_(std::move(traits)),
      base_lr_(traits_.lr),
      parameters_(traits_.name, model_, traits_.rules),
      states_(model_.num_groups()) {
  auto& engine = engine::EngineAccess::of(model_);
  const auto groups = engine.trainable_groups();
  const bool any_elsewhere =
      std::any_of(groups.begin(), groups.end(), [](const engine::ParamGroup* group) {
        const auto& residence = group->spec().residence;
        return residence.states != tiers::Tier::device ||
               residence.parameters != tiers::Tier::device;
      });
  make_states();
  if (!any_elsewhere) return;
  // Before anybody counts what is kept in halves.
  if (shows() != ShardedModel::Shown::written_in_halves) model_.keep_masters_whole();
  if (traits_.needs_all_states.empty()) {
    stream_ = std::make_unique<optim::StateStream>(engine, states_);
    const bool any_on_host =
        std::any_of(groups.begin(), groups.end(), [](const engine::ParamGroup* group) {
          return group->spec().residence.stepped_on == tiers::Tier::host;
        });
    if (any_on_host) host_step_ = std::make_unique<optim::HostStep>(engine);
  } else {
    check_usable_in_place();
    steps_in_place_ = true;
  }
}

// A step that looks at states more than once does that where they rest: the CPU uses any memory,
// also mapped files; a GPU reads and writes pinned memory over the bus.
void Optimizer::check_usable_in_place() const {
  const auto device = model_.mesh().world().device();
  if (device.is_cpu() && !model_.options().offload.streams_on_cpu) return;
  const auto refuse = [&](std::string_view where) {
    fail_as(ErrorKind::usage,
            "{}: {}, so what it updates cannot rest {}; keep it on the device or in pinned host "
            "memory, or use another optimizer",
            traits_.name, traits_.needs_all_states, where);
  };
  const auto& engine = engine::EngineAccess::of(model_);
  if (engine.residence().uses(tiers::Tier::disk)) refuse("on a disk");
  if (device.is_cpu()) return;
  for (size_t group = 0; group < states_.size(); ++group) {
    for (const auto& array :
         optim::resting_arrays(*engine.trainable_groups()[group], states_[group])) {
      if (array.numel() > 0 && !array.is_cuda() && !array.is_pinned()) {
        refuse("in pageable host memory");
      }
    }
  }
}

Optimizer::~Optimizer() = default;

Optimizer::StateOwner::~StateOwner() {
  for (const auto& group : states) model.free_states(group);
}

void Optimizer::make_states() {
  for (int group = 0; group < model_.num_groups(); ++group) {
    for (size_t i = 0; i < traits_.state_names.size(); ++i) {
      states_[group].push_back(model_.make_state(group, state_dtype(model_, group, traits_)));
    }
  }
}

const at::Tensor& Optimizer::state(int group, int index) const {
  if (stream_) stream_->settle();
  if (host_step_) host_step_->settle();
  return states_.at(group).at(index);
}

void Optimizer::set_lr(double lr) {
  set_scheduled_lr(lr);
  base_lr_ = lr;
}

void Optimizer::set_scheduled_lr(double lr) {
  optim::check_at_least_zero(name(), "lr", lr);
  traits_.lr = lr;
}

void Optimizer::set_momentum(double momentum) {
  check(has_momentum(), "{}: momentum cannot be set to {}: it was made without one", name(),
        momentum);
  optim::check_below_one(name(), "momentum", momentum);
  traits_.momentum = momentum;
}

void Optimizer::set_beta2(double beta2) {
  check(has_beta2(), "{}: beta2 cannot be set to {}: there is none", name(), beta2);
  optim::check_below_one(name(), "beta2", beta2);
  traits_.beta2 = beta2;
}

void Optimizer::restore_num_steps(int64_t num_steps) {
  check(num_steps >= 0, "{}: num_steps is {}, expected at least 0", name(), num_steps);
  num_steps_ = num_steps;
}

void Optimizer::update_on_device(const optim::DevicePass&) {
  fail_as(ErrorKind::usage,
          "{}: it has no step on CUDA; keep the model on the CPU or use another optimizer", name());
}

at::Tensor Optimizer::clip_without_waiting(double max_norm, ShardedModel::Norm norm) {
  check(max_norm >= 0 && std::isfinite(max_norm),
        "clip_without_waiting: max_norm is {}, expected 0 (no clipping) or a positive number",
        max_norm);
  if (stream_) stream_->fetch_ahead();
  if (model_.mesh().world().device().is_cpu()) {
    const double total =
        max_norm > 0 ? model_.clip_grad_norm(max_norm, norm) : model_.grad_norm(norm);
    return at::full({}, total, at::kDouble);
  }
  engine::EngineAccess::of(model_).check_gradients_kept();
  const auto kind = norm == ShardedModel::Norm::infinity ? engine::NormKind::largest
                                                         : engine::NormKind::sum_of_squares;
  const auto outcome =
      engine::clip_factor(engine::EngineAccess::of(model_), kind, max_norm, model_.loss_scale());
  model_.set_gradient_factor_on_device(outcome.narrow(0, 1, 1));
  return outcome.select(0, 0);
}

ShardedModel::Shown Optimizer::shows() const {
  const bool is_on_device = model_.mesh().world().device().is_cuda();
  return is_on_device && traits_.state_dtype == at::kFloat ? ShardedModel::Shown::written_in_halves
                                                           : ShardedModel::Shown::written_by_update;
}

optim::DevicePass Optimizer::device_pass(const std::vector<PieceView>& pieces,
                                         const optim::StatePlaces& places, double factor,
                                         at::Device device) {
  optim::DevicePass pass{.table = device_pieces_.table_of(pieces, places, parameters_, device)};
  pass.factor = factor;
  pass.factor_on_device = factor_on_device_;
  pass.rounding = optim::RoundingKey::of_step(traits_.rounding_seed, num_steps_);
  for (const auto& rules : device_pieces_.rules()) {
    pass.settings.push_back(
        {traits_.lr * rules.lr_scale, rules.weight_decay.value_or(traits_.weight_decay)});
  }
  return pass;
}

void Optimizer::update_pieces(const std::vector<PieceView>& pieces,
                              const optim::StatePlaces& places, double factor) {
  const auto device = model_.mesh().world().device();
  if (device.is_cuda()) return update_on_device(device_pass(pieces, places, factor, device));
  for_each(pieces, places, factor, [this](const PieceUpdate& piece) { update(piece); });
}

Optimizer::Moment Optimizer::exchange(const Moment& other) {
  return {std::exchange(traits_.lr, other.lr), std::exchange(traits_.momentum, other.momentum),
          std::exchange(traits_.beta2, other.beta2), std::exchange(num_steps_, other.num_steps),
          std::exchange(factor_on_device_, other.factor_on_device)};
}

engine::StreamedUpdate Optimizer::issue_streamed(int group, const std::vector<PieceView>& pieces,
                                                 double factor) {
  const Moment issued{traits_.lr, traits_.momentum, traits_.beta2, num_steps_, factor_on_device_};
  return stream_->update(group, pieces, [this, factor, issued](const optim::StateChunk& chunk) {
    const at::NoGradGuard no_grad;
    const Moment now = exchange(issued);
    update_pieces(chunk.pieces, chunk, factor);
    exchange(now);
  });
}

bool Optimizer::is_stepped_on_host(int group) const {
  return host_step_ && host_step_->steps(group);
}

engine::StreamedUpdate Optimizer::issue_on_host(int group, const std::vector<PieceView>& pieces,
                                                double factor) {
  const auto make = [this](const PieceView& piece) {
    std::function<void(double)> step;
    for_each({piece}, states_, 1,
             [&](const PieceUpdate& update) { step = deferred_update(update); });
    check(step != nullptr, "{}: it has no step on the host beside a device", name());
    return step;
  };
  return host_step_->update(group, pieces, factor, make);
}

void Optimizer::step() {
  at::NoGradGuard no_grad;
  auto& engine = engine::EngineAccess::of(model_);
  const auto version = engine.gradient_version();
  check(stepped_version_ != version,
        "{}: step(): there are no gradients since the last step, which took those that are there; "
        "call backward() first",
        name());
  engine.settle_readers();  // before_updates() changes states already
  ++num_steps_;
  factor_on_device_ = model_.gradient_factor_on_device();
  device_pieces_.start_step();
  const auto shown = shows();
  try {
    // Before anything looks at them.
    if (shown != ShardedModel::Shown::written_in_halves) model_.keep_masters_whole();
    before_updates();
    const auto update_now = [this](const std::vector<PieceView>& pieces, double factor) {
      update_pieces(pieces, states_, factor);
    };
    if (stream_) {
      engine::StreamedUpdates streamed;
      streamed.streams = [this](int group) {
        return stream_->streams(group) || is_stepped_on_host(group);
      };
      streamed.start = [this] {
        stream_->start_step({factor_on_device_});
        if (host_step_) host_step_->start_step(factor_on_device_);
      };
      streamed.issue = [this](int group, const std::vector<PieceView>& pieces, double factor) {
        return is_stepped_on_host(group) ? issue_on_host(group, pieces, factor)
                                         : issue_streamed(group, pieces, factor);
      };
      model_.update(update_now, shown, streamed);
      stream_->finish_step();
    } else {
      model_.update(update_now, shown);
      // The host may look at its own memory without asking the device.
      if (steps_in_place_) memory::synchronise(model_.mesh().world().device());
    }
  } catch (...) {
    --num_steps_;
    if (stream_) stream_->abandon_step();
    throw;
  }
  stepped_version_ = version;
}

}  // namespace fullshard
