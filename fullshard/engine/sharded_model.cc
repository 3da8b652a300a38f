// SPDX-License-Identifier: Apache-2.0
#include "fullshard/engine/sharded_model.h"

#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>
#include <spdlog/spdlog.h>

#include <algorithm>

#include "fullshard/base/error.h"
#include "fullshard/base/rank_notice.h"
#include "fullshard/engine/buffer_broadcast.h"
#include "fullshard/engine/engine.h"
#include "fullshard/engine/grad_norm.h"
#include "fullshard/engine/gradients/gradient_factor.h"
#include "fullshard/engine/link_warm_up.h"
#include "fullshard/engine/passes/streamed_update.h"

namespace fullshard {

// What the handle's copies share beside the engine.
struct ShardedModel::State {
  engine::GradientFactor factor;
  at::Tensor factor_on_device;  // in its place
  std::vector<engine::OwnedState> optimizer_states;
  engine::Sleep sleep;
  std::optional<engine::BufferBroadcast> buffers;  // absent: each rank keeps its own
};

NoSync::NoSync(std::shared_ptr<engine::Engine> engine) : engine_(std::move(engine)) {
  check(engine_->reduces(), "no_sync: the scope is open already");
  engine_->set_reduces(false);
}

NoSync::~NoSync() {
  if (engine_) engine_->set_reduces(true);
}

namespace {

std::shared_ptr<torch::nn::Module> checked_module(std::shared_ptr<torch::nn::Module> module) {
  if (!module) {
    fail_as(ErrorKind::usage,
            "shard: the module is empty: its holder was made with nullptr, or is a shared_ptr to "
            "nothing; make the module before it is sharded");
  }
  if (c10::InferenceMode::is_enabled()) {
    fail_as(ErrorKind::usage,
            "shard: called inside c10::InferenceMode, where autograd records nothing and never "
            "will for what is made there; shard the model outside, and open the mode around "
            "forwards");
  }
  return module;
}

}  // namespace

ShardedModel::ShardedModel(std::shared_ptr<torch::nn::Module> module, const World& world,
                           const ShardOptions& options)
    : module_(checked_module(std::move(module))),
      engine_(std::make_shared<engine::Engine>(*module_, world, options)),
      state_(std::make_shared<State>()) {
  engine_->start();
  if (options.broadcast_buffers) state_->buffers.emplace(mesh().everyone(), engine_->plan());
  engine::warm_up_links(*engine_);
  if (world.rank() != 0) return;
  base::tell_launcher(base::LauncherEnvironment::of_process().meeting,
                      base::RankNotice::has_sharded_a_model);
  for (const auto& warning : warnings()) spdlog::warn("{}", warning);
}

double ShardedModel::grad_norm(Norm norm, engine::NormRiders* riders) const {
  engine_->check_gradients_kept();
  engine_->take_in_steps();
  check_all_reduced("grad_norm()");
  if (norm == Norm::infinity)
    return state_->factor.unscaled(engine::infinity_norm(*engine_, riders));
  if (mesh().world().device().is_cpu()) engine_->want_squares();
  return state_->factor.unscaled(engine::two_norm(*engine_, riders));
}

double ShardedModel::clip_grad_norm(double max_norm, Norm norm, engine::NormRiders* riders) {
  check(max_norm > 0, "clip_grad_norm: max_norm is {}, expected a positive number", max_norm);
  const double total = grad_norm(norm, riders);
  forget_clip();
  state_->factor.clip(max_norm, total);
  // Who steps with gradients that pieces show asks for no factor.
  if (engine_->piece_holders().scale(gradient_factor())) forget_clip();
  return total;
}

void ShardedModel::zero_grad() {
  engine_->check_awake("zero_grad()");
  engine_->drop_gradients();
  forget_clip();
}

void ShardedModel::set_loss_scale(double scale) {
  if (scale == loss_scale()) return;
  state_->factor.set_loss_scale(scale);
  engine_->piece_holders().show_again();
}

double ShardedModel::loss_scale() const { return state_->factor.loss_scale(); }

std::optional<engine::FirstNonFinite> ShardedModel::first_non_finite() const {
  return engine::first_of_all_ranks(mesh().everyone(), engine_->watch().first());
}

std::string ShardedModel::first_non_finite_parameter() const {
  return fullshard::engine::first_non_finite_parameter(*engine_);
}

void ShardedModel::watch_parameter_gradients(bool on) {
  engine_->watch().watch_parameter_gradients(on);
}

void ShardedModel::skip_step() {
  ++engine_->counters().skipped_steps;
  zero_grad();
  if (state_->buffers) state_->buffers->synchronise();
}

void ShardedModel::set_gradient_reduction(bool on) {
  check(on || engine_->mesh().num_shards() == 1,
        "set_gradient_reduction: the model is cut into {} shards, and a shard cannot hold a rank's "
        "own gradient; use NO_SHARD or stage 0",
        engine_->mesh().num_shards());
  engine_->set_over_ranks(on);
}

GatherScope ShardedModel::gather_full(const GatherOptions& options) {
  return GatherScope(engine_, options);
}

namespace {

// This rank's pieces of one group.
std::vector<PieceView> views_of(const engine::ParamGroup& group, int index, Masters masters) {
  std::vector<PieceView> views;
  for (const auto& piece : group.pieces()) {
    const auto& slot = group.layout().slots()[piece.slot];
    PieceView view{slot.name, slot.shape, piece.begin, piece.end, index, piece.shard_offset};
    if (masters == Masters::as_kept) view.lower = group.lower_half(piece);
    if (!view.lower.defined()) {
      view.master =
          masters == Masters::as_kept ? group.master_to_update(piece) : group.master(piece);
    }
    if (group.gradients().is_reduced()) view.gradient = group.gradients().of_piece(piece);
    view.shown = group.shown(piece);
    views.push_back(std::move(view));
  }
  return views;
}

}  // namespace

std::vector<PieceView> ShardedModel::pieces(Masters masters) const {
  engine_->settle_updates();  // whoever sees masters may change them too
  std::vector<PieceView> views;
  int index = 0;
  for (auto* group : engine_->trainable_groups()) {
    group->gradients().forget_squares();  // whoever sees gradients may change them
    for (auto& view : views_of(*group, index++, masters)) views.push_back(std::move(view));
  }
  return views;
}

void ShardedModel::keep_masters_whole() {
  const auto groups = engine_->trainable_groups();
  const bool any_in_halves =
      std::any_of(groups.begin(), groups.end(),
                  [](const engine::ParamGroup* group) { return group->is_in_halves(); });
  if (any_in_halves) {
    engine_->settle_updates();
    engine_->settle_readers();
  }
  for (auto* group : groups) group->keep_master_whole();
}

void ShardedModel::settle() { engine_->settle_updates(); }

SleepReport ShardedModel::sleep() {
  return state_->sleep.begin(*engine_, state_->optimizer_states);
}

SleepReport ShardedModel::wake() { return state_->sleep.end(*engine_, state_->optimizer_states); }

namespace {

at::Tensor cut(const at::Tensor& tensor, int64_t begin, int64_t numel) {
  return tensor.defined() ? tensor.narrow(0, begin, numel) : tensor;
}

// Cuts pieces so that no call of an optimizer sees more than `most` elements.
std::vector<std::vector<PieceView>> batches_of(std::vector<PieceView> pieces, int64_t most) {
  std::erase_if(pieces, [](const PieceView& piece) { return piece.numel() == 0; });
  if (most == 0) return {std::move(pieces)};
  std::vector<std::vector<PieceView>> batches(1);
  int64_t filled = 0;
  for (auto& piece : pieces) {
    while (piece.numel() > 0) {
      const int64_t room = most - filled;
      if (room == 0) {
        batches.emplace_back();
        filled = 0;
        continue;
      }
      const int64_t numel = std::min(room, piece.numel());
      batches.back().push_back(piece.part(0, numel));
      piece = piece.part(numel, piece.numel() - numel);
      filled += numel;
    }
  }
  return batches;
}

void update_in_batches(engine::Engine& engine, std::vector<PieceView> pieces,
                       const ShardedModel::Update& update, double factor) {
  auto& largest = engine.counters().largest_update;
  for (const auto& batch : batches_of(std::move(pieces), engine.options().sub_group_size)) {
    int64_t numel = 0;
    for (const auto& piece : batch) numel += piece.numel();
    largest = std::max(largest, numel);
    if (!batch.empty()) update(batch, factor);
  }
}

}  // namespace

PieceView PieceView::part(int64_t first, int64_t numel) const {
  PieceView part = *this;
  part.begin += first;
  part.end = part.begin + numel;
  part.offset += first;
  part.master = cut(master, first, numel);
  part.gradient = cut(gradient, first, numel);
  part.shown = cut(shown, first, numel);
  part.lower = cut(lower, first, numel);
  return part;
}

void ShardedModel::check_all_reduced(std::string_view what) const {
  const auto groups = engine_->trainable_groups();
  const auto waiting = std::any_of(
      groups.begin(), groups.end(),
      [](const engine::ParamGroup* group) { return group->gradients().has_unreduced(); });
  check(!waiting,
        "{}: gradients were accumulated under no_sync and never reduced; run the last "
        "micro-batch's backward outside the scope",
        what);
}

void ShardedModel::check_trained_as_sharded() const {
  engine_->check_registered();
  for (const auto& unit : engine_->units()) {
    for (const auto& group : unit->groups()) group->check_trained_as_sharded();
  }
}

void ShardedModel::check_can_update() const {
  engine_->check_gradients_kept();
  engine_->take_in_steps();
  check_trained_as_sharded();
  check_all_reduced("step()");
  const auto groups = engine_->trainable_groups();
  const auto ready = std::any_of(groups.begin(), groups.end(), [](const engine::ParamGroup* group) {
    return group->gradients().is_reduced();
  });
  check(ready || groups.empty(), "step(): there are no gradients; call backward() first");
}

void ShardedModel::update(const Update& update, Shown shown) {
  this->update(update, shown, engine::StreamedUpdates{});
}

void ShardedModel::update(const Update& update, Shown shown,
                          const engine::StreamedUpdates& streamed) {
  check_can_update();
  engine_->begin_update();
  if (shown != Shown::written_in_halves) keep_masters_whole();
  if (engine_->mesh().world().device().is_cpu()) {
    update_on_host(update, shown, streamed);
  } else {
    update_on_device(update, shown, streamed);
  }
  finish_update();
}

void ShardedModel::finish_update() {
  engine_->finish_update();
  engine_->piece_holders().note_published();
  if (state_->buffers) state_->buffers->synchronise();
  forget_clip();
}

void ShardedModel::publish() {
  const at::NoGradGuard no_grad;
  check_trained_as_sharded();
  engine_->begin_update();
  for (auto* group : engine_->trainable_groups()) engine_->finish_group_update(*group);
  finish_update();
}

void ShardedModel::update_on_host(const Update& update, Shown shown,
                                  const engine::StreamedUpdates& streamed) {
  const auto groups = engine_->trainable_groups();
  issue_streamed(streamed);
  for (int index = 0; index < static_cast<int>(groups.size()); ++index) {
    auto& group = *groups[index];
    if (!group.gradients().is_reduced()) group.note_unchanged();
    if (group.gradients().is_reduced() && !group.is_updating()) {
      update_in_batches(*engine_, views_of(group, index, Masters::as_kept), update,
                        gradient_factor());
      if (shown != Shown::written_here) group.note_shown();
    }
    engine_->finish_group_update(group);
  }
}

// All groups at once, so that a step is a few launches.
void ShardedModel::update_on_device(const Update& update, Shown shown,
                                    const engine::StreamedUpdates& streamed) {
  const auto groups = engine_->trainable_groups();
  std::vector<PieceView> pieces;
  for (int index = 0; index < static_cast<int>(groups.size()); ++index) {
    auto& group = *groups[index];
    if (!group.gradients().is_reduced()) group.note_unchanged();
    if (!group.gradients().is_reduced() || streamed.streams(index)) continue;
    for (auto& view : views_of(group, index, Masters::as_kept)) pieces.push_back(std::move(view));
    if (shown != Shown::written_here) group.note_shown();
  }
  update_in_batches(*engine_, std::move(pieces), update, gradient_factor());
  issue_streamed(streamed);
  for (auto* group : groups) engine_->finish_group_update(*group);
}

// Whoever streams writes what is shown, too.
void ShardedModel::issue_streamed(const engine::StreamedUpdates& streamed) {
  streamed.start();
  const auto groups = engine_->trainable_groups();
  for (const int index : engine_->groups_in_forward_order()) {
    auto& group = *groups[index];
    if (!group.gradients().is_reduced() || !streamed.streams(index)) continue;
    const auto pieces = views_of(group, index, Masters::as_kept);
    std::vector<at::Tensor> read;
    for (const auto& piece : pieces) read.push_back(piece.gradient);
    group.begin_streamed_update(streamed.issue(index, pieces, gradient_factor()), std::move(read));
    group.note_shown();
  }
}

double ShardedModel::gradient_factor() const { return state_->factor.value(); }

const at::Tensor& ShardedModel::gradient_factor_on_device() const {
  return state_->factor_on_device;
}

void ShardedModel::set_gradient_factor_on_device(at::Tensor factor) {
  state_->factor_on_device = std::move(factor);
}

void ShardedModel::forget_clip() {
  state_->factor.forget_clip();
  state_->factor_on_device = at::Tensor();
}

int ShardedModel::num_groups() const {
  return static_cast<int>(engine_->trainable_groups().size());
}

int64_t ShardedModel::shard_numel(int group) const {
  return engine_->trainable_groups().at(group)->layout().shard_numel();
}

at::Tensor ShardedModel::make_state(int group, at::ScalarType dtype) {
  const int64_t numel = shard_numel(group);
  const auto bytes = numel * static_cast<int64_t>(c10::elementSize(dtype));
  const auto tier = engine_->trainable_groups().at(group)->spec().residence.states;
  engine_->check_awake("a new optimizer");
  auto memory = engine_->tiers().states(tier)->take(bytes, tiers::Purpose::optimizer);
  const auto state = memory.as(numel, dtype);
  if (tier != tiers::Tier::disk) state.zero_();  // a new file reads as zeros
  state_->optimizer_states.push_back({std::move(memory), state});
  return state;
}

void ShardedModel::free_states(const std::vector<at::Tensor>& states) noexcept {
  const auto is_freed = [&states](const engine::OwnedState& owned) {
    return std::any_of(states.begin(), states.end(),
                       [&](const at::Tensor& state) { return state.is_same(owned.tensor); });
  };
  try {
    engine_->settle_readers();
    std::erase_if(state_->optimizer_states, is_freed);
  } catch (const std::exception& error) {  // a save that still reads them: they stay
    spdlog::error("optimizer states: {}", error.what());
  }
}

ShardedModel shard(const ShardableModule& model, const World& world, const ShardOptions& options) {
  return ShardedModel(model.module(), world, options);
}

const ShardOptions& ShardedModel::options() const { return engine_->options(); }

const Mesh& ShardedModel::mesh() const { return engine_->mesh(); }

const Ledger& ShardedModel::ledger() const { return *engine_->ledger(); }

Ledger& ShardedModel::ledger() { return *engine_->ledger(); }

const ShardCounters& ShardedModel::counters() const { return engine_->counters(); }

int64_t ShardedModel::num_allocations() const { return engine_->pool()->num_allocations(); }

bool ShardedModel::shares_host_copy() const { return engine_->shares_host_copy(); }

int64_t ShardedModel::numel() const {
  int64_t total = 0;
  for (const auto& unit : engine_->plan().units) total += unit.numel();
  return total;
}

std::string ShardedModel::tree() const { return engine_->plan().tree(); }

const std::vector<std::string>& ShardedModel::warnings() const { return engine_->plan().warnings; }

}  // namespace fullshard
