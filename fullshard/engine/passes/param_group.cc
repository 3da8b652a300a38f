// SPDX-License-Identifier: Apache-2.0
#include "fullshard/engine/passes/param_group.h"

#include <ATen/core/grad_mode.h>
#include <c10/core/ScalarType.h>

#include <algorithm>
#include <utility>

#include "fullshard/base/error.h"
#include "fullshard/engine/plan/unit_name.h"

namespace fullshard::engine {
namespace {

// Where dtypes allow it, and ranks do not share one copy.
bool rests_in_halves(const GroupContext& context, const GroupSpec& spec) {
  return spec.in_halves && full_placement(context, spec) != FullPlacement::host_copy &&
         spec.trainable && spec.compute_dtype == at::kBFloat16 && spec.master_dtype == at::kFloat &&
         spec.gradient_dtype == at::kFloat;
}

std::unique_ptr<Master> master_of(const GroupContext& context, const GroupSpec& spec,
                                  const Layout& layout, const at::Tensor& resting_slice) {
  const auto& tiers = *context.tiers;
  const bool is_elsewhere = spec.residence.states != tiers::Tier::device;
  MasterPlace place{.parameter_pool = tiers.parameters(spec.residence.parameters),
                    .state_pool = tiers.states(spec.residence.states),
                    .scratch_pool = is_elsewhere ? tiers.pageable() : context.pool,
                    .purpose = spec.trainable ? tiers::Purpose::master : tiers::Purpose::parameters,
                    .numel = layout.shard_numel(),
                    .dtype = spec.master_dtype,
                    .compute_dtype = spec.compute_dtype,
                    .resting = resting_slice};
  return make_master(std::move(place), rests_in_halves(context, spec));
}

}  // namespace

ParamGroup::ParamGroup(const GroupContext& context, GroupSpec spec, bool take_rank_0)
    : context_(context),
      spec_(std::move(spec)),
      owner_(describe_unit(spec_.unit)),
      layout_(layout_of(spec_, context.mesh->num_shards())),
      pieces_(layout_.pieces(context.mesh->shard())),
      flat_(layout_, spec_.compute_dtype, owner_, context.mesh->world().device()),
      gradients_(context, layout_, spec_.sharding.gradients,
                 {spec_.reduce_dtype, spec_.gradient_dtype}, owner_, spec_.residence.gradients),
      full_(make_full_storage(context, spec_, layout_, owner_)),
      master_(master_of(context, spec_, layout_, full_->resting_slice())) {
  at::NoGradGuard no_grad;
  if (take_rank_0) {
    take_rank_0_values();
  } else {
    take_values();
  }
  master_->rest();
  adopt_parameters();
  note_versions();
}

void ParamGroup::copy_own_pieces(const at::Tensor& target) {
  target.zero_();
  for (const auto& piece : pieces_) {
    const auto& values = spec_.parameters[piece.slot].tensor;
    if (values.is_meta()) continue;
    target.narrow(0, piece.shard_offset, piece.numel())
        .copy_(values.detach().reshape({-1}).narrow(0, piece.begin, piece.numel()));
  }
}

// `as_seen`: `full` is what computation sees, a cast of the master, whoever holds that.
void ParamGroup::copy_slots(const at::Tensor& full, bool as_seen) {
  for (const auto& gap : layout_.padding()) full.narrow(0, gap.begin, gap.end - gap.begin).zero_();
  for (size_t i = 0; i < spec_.parameters.size(); ++i) {
    const auto& slot = layout_.slots()[i];
    const auto target = full.narrow(0, slot.offset, slot.numel).view(slot.shape);
    auto values = spec_.parameters[i].tensor.detach();
    if (values.is_meta()) {
      target.zero_();
      continue;
    }
    if (spec_.master_dtype != spec_.compute_dtype) values = values.to(spec_.master_dtype);
    if (as_seen) {
      master_->write_seen(target, values);
    } else {
      target.copy_(values);
    }
  }
}

void ParamGroup::take_values() {
  full_->fill(*master_, {.write_full = [this](const at::Tensor& full) { copy_slots(full, true); },
                         .write_own = [this](const at::Tensor& own) { copy_own_pieces(own); }});
}

void ParamGroup::take_rank_0_values() {
  // Not a block of the pool, which would keep it for a taker as large.
  const auto values = context_.pool->allocate(layout_.numel(), spec_.master_dtype);
  auto& ledger = context_.pool->ledger();
  const auto bytes = static_cast<int64_t>(values.nbytes());
  ledger.hold(tiers::Purpose::workspace, tiers::Tier::device, bytes);
  copy_slots(values, false);
  context_.mesh->everyone().broadcast(values, 0, owner_).wait();
  const int64_t first = context_.mesh->shard() * layout_.shard_numel();
  full_->fill(
      *master_,
      {.write_full = [&](const at::Tensor& full) { master_->write_seen(full, values); },
       .write_own =
           [&](const at::Tensor& own) { own.copy_(values.narrow(0, first, own.numel())); }});
  ledger.drop(tiers::Purpose::workspace, tiers::Tier::device, bytes);
}

void ParamGroup::adopt_parameters() {
  for (size_t i = 0; i < spec_.parameters.size(); ++i) {
    flat_.adopt(static_cast<int>(i), spec_.parameters[i].tensor);
  }
  if (!is_released_at_rest()) flat_.attach(full_->full().data_ptr());
}

void ParamGroup::await_stored() const {
  stored_.wait();
  context_.tiers->drain();
}

void ParamGroup::make_master_whole() {
  await_update();
  await_stored();
  master_->make_whole();
}

void ParamGroup::keep_master_whole() {
  await_update();
  if (is_in_halves()) await_stored();
  if (auto whole = master_->kept_whole()) master_ = std::move(whole);
}

void ParamGroup::use_counters(std::shared_ptr<SharedCounters> counters, int slot) {
  full_->use_counters(std::move(counters), slot);
}

// What rests elsewhere is fetched behind the update on a lane of its own; the caller need not wait
// for that before it uses the parameters.
void ParamGroup::begin_unshard() {
  const bool is_elsewhere = spec_.residence.parameters != tiers::Tier::device;
  if (!is_elsewhere) await_update();
  if (is_live() || arriving_) return;
  full_->begin_gather(*master_, stored_);
  arriving_ = true;
  context_.counters->live(layout_.numel());
}

void ParamGroup::finish_unshard() {
  await_update();
  if (!std::exchange(arriving_, false)) return;
  try {
    full_->finish_gather();
  } catch (...) {  // what came, of a disk or of other ranks, is not to be used
    context_.counters->live(-layout_.numel());
    throw;
  }
  flat_.attach(full_->full().data_ptr());
}

void ParamGroup::reshard() {
  if (!is_released_at_rest()) return;
  if (arriving_) finish_unshard();
  if (!is_live()) return;
  flat_.detach();
  full_->release();
  context_.counters->live(-layout_.numel());
}

void ParamGroup::begin_write() {
  is_writing_ = true;
  make_master_whole();
  begin_unshard();
  finish_unshard();
  full_->begin_write();
  flat_.attach(full_->full().data_ptr());
}

void ParamGroup::check_written() const {
  for (const auto& parameter : spec_.parameters) {
    check(flat_.owns(parameter.tensor),
          "parameter '{}' of {} was given other memory inside gather_full; write its values in "
          "place (copy_, fill_) instead of set_data or Module::to",
          parameter.names.front(), owner_);
  }
}

void ParamGroup::finish_write() {
  at::NoGradGuard no_grad;
  context_.mesh->everyone().broadcast(full_->full(), 0, owner_).wait();
  full_->take_written(*master_);
  end_write();
  is_writing_ = false;
  bump_versions();
}

void ParamGroup::abandon_write() {
  if (!std::exchange(is_writing_, false)) return;
  end_write();
  note_versions();
}

// The scope may have failed before the parameters had memory.
void ParamGroup::end_write() {
  full_->end_write();
  if (is_live()) flat_.attach(full_->full().data_ptr());
  rest_master();
}

void ParamGroup::begin_publish() {
  at::NoGradGuard no_grad;
  if (full_->publishes_values()) await_update();
  master_->finish_update(std::exchange(is_shown_, false));
  full_->begin_publish();
}

void ParamGroup::finish_update() {
  full_->finish_publish();
  bump_versions();
}

void ParamGroup::begin_streamed_update(StreamedUpdate update, std::vector<at::Tensor> read) {
  await_update();
  updated_ = std::move(update.updated);
  stored_ = std::move(update.stored);
  read_by_update_ = std::move(read);
  gradients_.begin_use();
  if (!is_released_at_rest()) flat_.detach_for_update();
}

void ParamGroup::end_streamed_update() {
  context_.tiers->update_waits().around_caller(device(), [this] { updated_->hold_caller(); });
  updated_.reset();
  read_by_update_.clear();
  gradients_.end_use();
  if (!is_released_at_rest()) flat_.attach(full_->full().data_ptr());
}

void ParamGroup::relocate(const memory::Relocation& relocation) {
  full_->relocate(relocation);
  master_->relocate(relocation, full_->resting_slice());
  gradients_.relocate(relocation);
}

void ParamGroup::leave_device(const memory::Relocation& relocation) {
  relocate(relocation);
  flat_.detach_asleep();
}

void ParamGroup::return_to_device(const memory::Relocation& relocation) {
  relocate(relocation);
  flat_.detach();
  if (!is_released_at_rest()) flat_.attach(full_->full().data_ptr());
}

std::vector<at::Tensor> ParamGroup::parameters() const {
  std::vector<at::Tensor> tensors;
  for (const auto& parameter : spec_.parameters) tensors.push_back(parameter.tensor);
  return tensors;
}

at::Tensor ParamGroup::master(const Piece& piece) const {
  return master(piece.shard_offset, piece.numel());
}

at::Tensor ParamGroup::master(int64_t first, int64_t numel) const {
  at::NoGradGuard no_grad;
  await_stored();
  return master_->values(first, numel);
}

at::Tensor ParamGroup::master_to_update(const Piece& piece) const {
  return master_->values(piece.shard_offset, piece.numel());
}

at::Tensor ParamGroup::lower_half(const Piece& piece) const {
  return master_->lower_half(piece.shard_offset, piece.numel());
}

at::Tensor ParamGroup::shown(const Piece& piece) const {
  return master_->shown(piece.shard_offset, piece.numel());
}

void ParamGroup::note_versions() {
  versions_.clear();
  for (const auto& parameter : spec_.parameters) versions_.push_back(parameter.tensor._version());
}

void ParamGroup::bump_versions() {
  for (auto& parameter : spec_.parameters) parameter.tensor.unsafeGetTensorImpl()->bump_version();
  note_versions();
}

void ParamGroup::check_untouched() {
  for (size_t i = 0; i < spec_.parameters.size(); ++i) {
    const auto& parameter = spec_.parameters[i];
    if (!flat_.owns(parameter.tensor)) [[unlikely]] {
      fail(
          "parameter '{}' of {} no longer lies in its unit's buffer: Module::to, set_data or the "
          "like gave it other memory after shard(). Move or convert the module before shard()",
          parameter.names.front(), owner_);
    }
    if (parameter.tensor._version() != versions_[i]) [[unlikely]] {
      note_versions();
      fail(
          "parameter '{}' of {} was written in place outside gather_full: the shards do not see "
          "that. Write inside `auto full = sharded.gather_full({{.write_back = true}});`",
          parameter.names.front(), owner_);
    }
  }
}

void ParamGroup::check_trained_as_sharded() const {
  for (const auto& parameter : spec_.parameters) {
    if (parameter.tensor.requires_grad() == trainable()) continue;
    const char* const found =
        trainable() ? "was frozen after shard(), and would move on by momentum and weight decay"
                    : "was frozen in shard(), and has neither gradients nor states";
    fail(
        "step(): parameter '{}' of {} {}: shard() decides by requires_grad what is trained; set it "
        "before",
        parameter.names.front(), owner_, found);
  }
}

}  // namespace fullshard::engine
