#include "fullshard/shard/param_group.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/where.h>
#include <c10/core/ScalarType.h>

#include <algorithm>
#include <utility>

#include "fullshard/base/bytes.h"
#include "fullshard/base/error.h"
#include "fullshard/shard/unit_name.h"

namespace fullshard {
namespace {

constexpr int64_t kAlignBytes = 16;

int64_t element_bytes(at::ScalarType dtype) {
  return static_cast<int64_t>(c10::elementSize(dtype));
}

// Aligned for the narrowest dtype that the group's elements are kept in.
Layout make_layout(const GroupSpec& spec, int num_shards) {
  std::vector<TensorSpec> tensors;
  for (const auto& parameter : spec.parameters) {
    tensors.push_back({parameter.names.front(), parameter.tensor.sizes().vec()});
  }
  const int64_t narrowest =
      std::min({element_bytes(spec.compute_dtype), element_bytes(spec.master_dtype),
                element_bytes(spec.reduce_dtype), element_bytes(spec.gradient_dtype)});
  return Layout(tensors, num_shards, std::max<int64_t>(kAlignBytes / narrowest, 1));
}

bool can_be_halved(const GroupSpec& spec) {
  return spec.trainable && spec.compute_dtype == at::kBFloat16 && spec.master_dtype == at::kFloat &&
         spec.gradient_dtype == at::kFloat;
}

}  // namespace

ParamGroup::ParamGroup(const GroupContext& context, GroupSpec spec, bool take_rank_0)
    : context_(context),
      spec_(std::move(spec)),
      owner_(describe_unit(spec_.unit)),
      layout_(make_layout(spec_, context.mesh->num_shards())),
      pieces_(layout_.pieces(context.mesh->shard())),
      flat_(layout_, spec_.compute_dtype, owner_, context.mesh->world().device()),
      gradients_(context, layout_, spec_.sharding.gradients,
                 {spec_.reduce_dtype, spec_.gradient_dtype}, owner_),
      full_stays_(context.mesh->num_shards() == 1 ||
                  spec_.sharding.parameters == Placement::replicated),
      one_copy_(context.one_copy && !full_stays_),
      wants_halves_(spec_.in_halves && !one_copy_ && can_be_halved(spec_)) {
  at::NoGradGuard no_grad;
  make_buffers();
  if (take_rank_0) {
    take_rank_0_values();
  } else {
    take_values();
  }
  halve_master();
  adopt_parameters();
  note_versions();
}

int64_t ParamGroup::full_bytes() const {
  return layout_.numel() * element_bytes(spec_.compute_dtype);
}

at::Tensor ParamGroup::full() const {
  return private_copy_ ? private_copy_.as(layout_.numel(), spec_.compute_dtype) : lasting_full();
}

at::Tensor ParamGroup::lasting_full() const {
  return one_copy_ ? common_ : full_.as(layout_.numel(), spec_.compute_dtype);
}

at::Tensor ParamGroup::own_slice(const at::Tensor& full) const {
  return full.narrow(0, context_.mesh->shard() * layout_.shard_numel(), layout_.shard_numel());
}

void ParamGroup::make_buffers() {
  auto& pool = *context_.pool;
  const int64_t shard_bytes = layout_.shard_numel() * element_bytes(spec_.master_dtype);
  const bool same_dtype = spec_.compute_dtype == spec_.master_dtype;
  const bool has_resting_full = full_stays_ || one_copy_;
  if (full_stays_) full_ = pool.take(full_bytes(), Purpose::parameters);
  if (one_copy_) {
    common_ = context_.mesh->shards().allocate_common(layout_.numel(), spec_.compute_dtype);
    // A rank answers for its own slice; the host holds the whole once.
    pool.ledger().hold(same_dtype && spec_.trainable ? Purpose::master : Purpose::parameters,
                       Tier::device, full_bytes() / layout_.num_shards());
  }
  if (same_dtype && has_resting_full) {
    master_ = own_slice(full());
    return;
  }
  master_block_ = pool.take(shard_bytes, spec_.trainable ? Purpose::master : Purpose::parameters);
  master_ = master_block_.as(layout_.shard_numel(), spec_.master_dtype);
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

void ParamGroup::copy_slots(const at::Tensor& full) {
  for (const auto& gap : layout_.padding()) full.narrow(0, gap.begin, gap.end - gap.begin).zero_();
  for (size_t i = 0; i < spec_.parameters.size(); ++i) {
    const auto& slot = layout_.slots()[i];
    const auto target = full.narrow(0, slot.offset, slot.numel).view(slot.shape);
    auto values = spec_.parameters[i].tensor.detach();
    if (values.is_meta()) {
      target.zero_();
      continue;
    }
    // What is seen is a cast of the master, whoever holds that.
    if (spec_.master_dtype != spec_.compute_dtype) values = values.to(spec_.master_dtype);
    const bool is_seen = full.scalar_type() == spec_.compute_dtype;
    target.copy_(is_seen && wants_halves_ ? nearest_halves(values.to(full.device())) : values);
  }
}

void ParamGroup::take_values() {
  if (full_stays_) copy_slots(full());
  if (!full_stays_ || master_block_) copy_own_pieces(master_);
  if (one_copy_) show_master_in_full();
}

void ParamGroup::take_rank_0_values() {
  const auto staging =
      context_.pool->take(layout_.numel() * element_bytes(spec_.master_dtype), Purpose::workspace);
  const auto values = staging.as(layout_.numel(), spec_.master_dtype);
  copy_slots(values);
  context_.mesh->everyone().broadcast(values, 0, owner_).wait();
  if (full_stays_) full().copy_(wants_halves_ ? nearest_halves(values) : values);
  if (!full_stays_ || master_block_) master_.copy_(own_slice(values));
  if (one_copy_) show_master_in_full();
}

void ParamGroup::adopt_parameters() {
  for (size_t i = 0; i < spec_.parameters.size(); ++i) {
    flat_.adopt(static_cast<int>(i), spec_.parameters[i].tensor);
  }
  if (full_stays_) flat_.attach(full().data_ptr());
}

// The values that other ranks gather from: the own slice of a full buffer that rests.
void ParamGroup::show_master_in_full() {
  if (master_block_) own_slice(full()).copy_(master_);
}

void ParamGroup::make_master_whole() {
  if (!halves_) return;
  at::NoGradGuard no_grad;
  master_block_ = context_.pool->take(layout_.shard_numel() * element_bytes(spec_.master_dtype),
                                      Purpose::master);
  master_ = master_block_.as(layout_.shard_numel(), spec_.master_dtype);
  halves_->join_into(master_);
  halves_.reset();
}

void ParamGroup::keep_master_whole() {
  make_master_whole();
  wants_halves_ = false;
}

void ParamGroup::halve_master() {
  if (!wants_halves_ || halves_) return;
  at::NoGradGuard no_grad;
  halves_.emplace(*context_.pool, master_, full_stays_ ? own_slice(full()) : at::Tensor());
  master_ = at::Tensor();
  master_block_ = {};
}

void ParamGroup::use_counters(std::shared_ptr<SharedCounters> counters, int slot) {
  counters_ = std::move(counters);
  counter_slot_ = slot;
  counters_->publish(slot, version_);
}

void ParamGroup::begin_unshard() {
  if (full_stays_ || is_live() || arriving_) return;
  if (one_copy_) {
    Record record;
    record.operation = Operation::share;
    record.group = context_.mesh->shards().group();
    record.unit = owner_;
    record.bytes = full_bytes();
    share_ticket_ = context_.mesh->shards().recorder().issue(std::move(record));
  } else {
    at::NoGradGuard no_grad;
    full_ = context_.pool->take(full_bytes(), Purpose::parameters);
    gather_ = context_.traffic->gather(full(), shard_to_send(own_slice(full())), owner_);
  }
  arriving_ = true;
  context_.counters->live(layout_.numel());
}

// What rests is sent as it is where it has the dtype; else it is made in its place of the gathered
// buffer.
at::Tensor ParamGroup::shard_to_send(const at::Tensor& own) {
  if (halves_) return halves_->nearest();
  if (spec_.compute_dtype == spec_.master_dtype) return master_;
  own.copy_(wants_halves_ ? nearest_halves(master_) : master_);
  context_.counters->copied_for_gathers += static_cast<int64_t>(own.nbytes());
  return own;
}

void ParamGroup::finish_unshard() {
  if (!arriving_) return;
  if (one_copy_) {
    if (seen_version_ != version_) {
      counters_->wait_for_all(counter_slot_, version_, "the shared parameters", owner_);
      seen_version_ = version_;
    }
    context_.mesh->shards().recorder().finish(share_ticket_, 0);
  } else {
    gather_.wait();
  }
  flat_.attach(full().data_ptr());
  arriving_ = false;
}

void ParamGroup::reshard() {
  if (full_stays_) return;
  if (arriving_) finish_unshard();
  if (!is_live()) return;
  flat_.detach();
  if (!one_copy_) full_ = {};
  context_.counters->live(-layout_.numel());
}

void ParamGroup::begin_write() {
  is_writing_ = true;
  make_master_whole();
  begin_unshard();
  finish_unshard();
  if (!full_stays_ && !one_copy_) return;  // what was gathered goes with the scope
  at::NoGradGuard no_grad;
  auto copy = context_.pool->take(full_bytes(), Purpose::parameters);
  copy.as(layout_.numel(), spec_.compute_dtype).copy_(lasting_full());
  private_copy_ = std::move(copy);
  flat_.attach(private_copy_.data());
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
  context_.mesh->everyone().broadcast(full(), 0, owner_).wait();
  if (master_block_ || one_copy_) take_written(own_slice(full()));
  if (full_stays_) lasting_full().copy_(full());
  drop_private_copy();
  halve_master();
  if (one_copy_) {
    show_master_in_full();
    context_.mesh->everyone().barrier(owner_);
  }
  is_writing_ = false;
  bump_versions();
}

void ParamGroup::abandon_write() {
  if (!std::exchange(is_writing_, false)) return;
  drop_private_copy();
  halve_master();
  note_versions();
}

void ParamGroup::drop_private_copy() {
  if (!private_copy_) return;
  flat_.attach(lasting_full().data_ptr());
  private_copy_ = {};
}

// A master is more precise than what was seen of it: it stays where nobody wrote anything else.
void ParamGroup::take_written(const at::Tensor& values) {
  if (spec_.compute_dtype == spec_.master_dtype) {
    master_.copy_(values);
    return;
  }
  const auto seen = wants_halves_ ? nearest_halves(master_) : master_.to(spec_.compute_dtype);
  const auto is_untouched = values.eq(seen);
  master_.copy_(at::where(is_untouched, master_, values.to(spec_.master_dtype)));
}

void ParamGroup::begin_finish_update() {
  ++version_;
  at::NoGradGuard no_grad;
  if (wants_halves_) {
    halve_master();
  } else if ((full_stays_ || one_copy_) && !is_shown_) {
    show_master_in_full();
  }
  is_shown_ = false;
  if (counters_) counters_->publish(counter_slot_, version_);
  if (full_stays_ && layout_.num_shards() > 1) {
    gather_ = context_.traffic->gather(full(), own_slice(full()), owner_);
  }
}

void ParamGroup::finish_update() {
  gather_.wait();
  bump_versions();
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
  return halves_ ? halves_->joined(first, numel) : master_.narrow(0, first, numel);
}

at::Tensor ParamGroup::lower_half(const Piece& piece) const {
  return halves_ ? halves_->lower().narrow(0, piece.shard_offset, piece.numel()) : at::Tensor();
}

at::Tensor ParamGroup::shown(const Piece& piece) const {
  if (halves_) return halves_->nearest().narrow(0, piece.shard_offset, piece.numel());
  if (!master_block_ || !(full_stays_ || one_copy_)) return {};
  return own_slice(full()).narrow(0, piece.shard_offset, piece.numel());
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

}  // namespace fullshard
