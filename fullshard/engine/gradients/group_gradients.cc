// SPDX-License-Identifier: Apache-2.0
#include "fullshard/engine/gradients/group_gradients.h"

#include <ATen/Parallel.h>
#include <ATen/ops/zeros.h>
#include <c10/core/ScalarType.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>

#include "fullshard/base/bytes.h"
#include "fullshard/comm/ordered_sum.h"
#include "fullshard/engine/gradients/gradient_factor.h"
#include "fullshard/tensor/pretence.h"

namespace fullshard::engine {
namespace {

int64_t bytes_of(int64_t numel, at::ScalarType dtype) {
  return numel * static_cast<int64_t>(c10::elementSize(dtype));
}

// Most gradients are contiguous and of the right dtype: a plain copy is quicker than torch's.
void copy_into(const at::Tensor& target, const at::Tensor& source) {
  if (source.scalar_type() != target.scalar_type() || !source.is_contiguous() || !target.is_cpu() ||
      tensor::is_pretended()) {
    target.copy_(source);
    return;
  }
  constexpr int64_t kGrain = 256 * kKiB;
  auto* to = static_cast<std::byte*>(target.data_ptr());
  const auto* from = static_cast<const std::byte*>(source.const_data_ptr());
  at::parallel_for(0, static_cast<int64_t>(source.nbytes()), kGrain,
                   [&](int64_t begin, int64_t end) {
                     std::memcpy(to + begin, from + begin, static_cast<size_t>(end - begin));
                   });
}

}  // namespace

GroupGradients::GroupGradients(const GroupContext& context, const Layout& layout,
                               Placement placement, Dtypes dtypes, std::string unit,
                               tiers::Tier tier)
    : context_(context),
      layout_(layout),
      dtypes_(dtypes),
      unit_(std::move(unit)),
      pieces_(layout.pieces(context.mesh->shard())),
      in_place_(placement == Placement::replicated && dtypes.reduce == dtypes.shard),
      single_rank_(context.mesh->world().size() == 1),
      parked_(layout.slots().size()),
      kept_(layout.slots().size()),
      received_(layout.slots().size(), false) {
  if (single_rank_ && context.contiguous_gradients) {
    slots_.emplace(context.pool, layout_, dtypes_.shard);
  }
  if (tier != tiers::Tier::device && !in_place_) {
    away_.emplace(context, layout_, pieces_, dtypes_.shard);
  }
}

// The update finds them in host memory; a later backward, which adds to them, takes them back.
void GroupGradients::go_away() {
  if (!away_ || away_->is_away()) return;
  std::vector<at::Tensor> values, memory;
  for (const auto& piece : pieces_) values.push_back(of_piece(piece));
  if (slots_) memory = slots_->memory();
  for (const auto& kept : kept_) {
    if (kept.defined()) memory.push_back(kept);
  }
  if (shard_) memory.push_back(shard_.memory());
  away_->take(values, memory);
  if (slots_) slots_->drop();
  forget(kept_);
  shard_ = {};
}

void GroupGradients::come_back() {
  if (!away_ || !away_->is_away()) return;
  away_->hold_caller();
  const auto come_to = [&](const Piece& piece, const at::Tensor& target) {
    target.copy_(away_->of_piece(piece), /*non_blocking=*/true);
    context_.counters->gradients_copied_in += static_cast<int64_t>(target.nbytes());
  };
  if (!single_rank_) {
    shard_ = context_.pool->take(bytes_of(layout_.shard_numel(), dtypes_.shard),
                                 tiers::Purpose::gradients);
    shard().zero_();
  }
  for (const auto& piece : pieces_) {
    if (slots_) {
      come_to(piece,
              slots_->open(piece.slot).target.view({-1}).narrow(0, piece.begin, piece.numel()));
    } else if (single_rank_) {
      auto& kept = kept_[piece.slot];
      kept = zeros_of(piece.numel()).view(layout_.slots()[piece.slot].shape);
      context_.pool->ledger().hold(tiers::Purpose::gradients, tiers::Tier::device,
                                   static_cast<int64_t>(kept.nbytes()));
      come_to(piece, kept.view({-1}));
    } else {
      come_to(piece, shard().narrow(0, piece.shard_offset, piece.numel()));
    }
  }
  away_->forget();
}

void GroupGradients::forget_squares() {
  squared_numel_ = 0;
  if (away_) away_->forget_norms();
}

bool GroupGradients::parks() const {
  return (single_rank_ && !slots_) || !context_.contiguous_gradients;
}

bool GroupGradients::collects_wide() const {
  return context_.defers_reduction && c10::elementSize(dtypes_.reduce) < sizeof(float);
}

at::Tensor GroupGradients::collecting() const {
  return wide_ ? wide_.as(layout_.numel(), at::kFloat) : full();
}

at::Tensor GroupGradients::full() const { return full_.as(layout_.numel(), dtypes_.reduce); }

at::Tensor GroupGradients::own_slice() const {
  const int64_t numel = layout_.shard_numel();
  return full().narrow(0, context_.mesh->shard() * numel, numel);
}

at::Tensor GroupGradients::slot_view(int slot) const {
  const auto& place = layout_.slots()[slot];
  return collecting().narrow(0, place.offset, place.numel).view(place.shape);
}

at::Tensor GroupGradients::received(int slot) const {
  if (slots_) return slots_->is_filled(slot) ? slots_->view(slot) : at::Tensor();
  if (parks()) return parked_[slot];
  return received_[slot] ? slot_view(slot) : at::Tensor();
}

void GroupGradients::receive(int slot, const at::Tensor& gradient) {
  come_back();
  finish_reduce();  // a late gradient must not change what peers are reading
  ++num_unreduced_;
  if (slots_) {
    const auto sink = slots_->open(slot);
    sink.accumulate ? sink.target.add_(gradient) : sink.target.copy_(gradient);
    return;
  }
  if (parks()) {
    park(slot, gradient);
    return;
  }
  open_buffer();
  auto target = slot_view(slot);
  if (received_[slot]) {
    target.add_(gradient);
  } else {
    copy_into(target, gradient);
    ++context_.counters->gradient_copies;
  }
  received_[slot] = true;
}

bool GroupGradients::take_whole(int slot, const at::Tensor& gradient) {
  come_back();
  if (!slots_ || !slots_->take(slot, gradient)) return false;
  ++num_unreduced_;
  return true;
}

nn::GradientSink GroupGradients::open_slot(int slot) {
  if (parks()) return {};
  come_back();
  finish_reduce();
  ++num_unreduced_;
  if (slots_) return slots_->open(slot);
  open_buffer();
  const bool holds_one = received_[slot];
  received_[slot] = true;
  return {slot_view(slot), holds_one};
}

void GroupGradients::park(int slot, const at::Tensor& gradient) {
  auto& kept = parked_[slot];
  if (kept.defined()) {
    // Sums are wide even where a single gradient is narrow.
    if (kept.element_size() < static_cast<int64_t>(sizeof(float))) {
      const auto more = static_cast<int64_t>(kept.numel() * sizeof(float) - kept.nbytes());
      context_.pool->ledger().hold(tiers::Purpose::gradients, tiers::Tier::device, more);
      kept = kept.to(at::kFloat);
    }
    kept.add_(gradient);
    return;
  }
  const auto dtype = single_rank_ ? dtypes_.shard : dtypes_.reduce;
  // Autograd may hand over an expanded or shared tensor; only a plain one may be kept and added to.
  kept = gradient.scalar_type() == dtype && gradient.is_contiguous() && gradient.use_count() <= 2
             ? gradient.detach()
             : gradient.to(dtype, /*non_blocking=*/false, /*copy=*/true).contiguous();
  context_.pool->ledger().hold(tiers::Purpose::gradients, tiers::Tier::device,
                               static_cast<int64_t>(kept.nbytes()));
  ++context_.counters->parked_gradients;
}

void GroupGradients::unpark() {
  for (size_t slot = 0; slot < parked_.size(); ++slot) {
    if (!parked_[slot].defined()) continue;
    copy_into(slot_view(static_cast<int>(slot)), parked_[slot]);
    context_.pool->ledger().drop(tiers::Purpose::gradients, tiers::Tier::device,
                                 static_cast<int64_t>(parked_[slot].nbytes()));
    parked_[slot] = at::Tensor();
    received_[slot] = true;
    ++context_.counters->gradient_copies;
  }
}

void GroupGradients::keep_parked() {
  for (size_t slot = 0; slot < parked_.size(); ++slot) {
    if (!parked_[slot].defined()) continue;
    if (!kept_[slot].defined()) {
      kept_[slot] = std::move(parked_[slot]);
    } else {
      kept_[slot].add_(parked_[slot]);
    }
  }
}

void GroupGradients::forget(std::vector<at::Tensor>& gradients) {
  for (auto& gradient : gradients) {
    if (!gradient.defined()) continue;
    context_.pool->ledger().drop(tiers::Purpose::gradients, tiers::Tier::device,
                                 static_cast<int64_t>(gradient.nbytes()));
    gradient = at::Tensor();
  }
}

void GroupGradients::open_buffer() {
  if (full_ && is_reduced_ && in_place_ && !carried_) {
    set_aside_own_slice();
    return;
  }
  if (full_ || wide_) return;
  context_.draining->settle();
  auto& buffer = collects_wide() ? wide_ : full_;
  const auto dtype = collects_wide() ? at::kFloat : dtypes_.reduce;
  buffer = context_.pool->take(bytes_of(layout_.numel(), dtype), tiers::Purpose::gradients);
  zero_padding();
}

void GroupGradients::narrow() {
  if (!wide_) return;
  full_ = context_.pool->take(bytes_of(layout_.numel(), dtypes_.reduce), tiers::Purpose::gradients);
  full().copy_(collecting());
  wide_ = {};
}

void GroupGradients::set_aside_own_slice() {
  const int64_t numel = layout_.shard_numel();
  carried_ = context_.pool->take(bytes_of(numel, dtypes_.shard), tiers::Purpose::gradients);
  carried_.as(numel, dtypes_.shard).copy_(own_slice());
  zero_padding();
}

void GroupGradients::zero_padding() {
  for (const auto& gap : layout_.padding()) {
    collecting().narrow(0, gap.begin, gap.end - gap.begin).zero_();
  }
}

void GroupGradients::zero_missing() {
  for (size_t slot = 0; slot < received_.size(); ++slot) {
    if (!received_[slot]) slot_view(static_cast<int>(slot)).zero_();
  }
}

void GroupGradients::begin_reduce() {
  come_back();
  if (single_rank_) {
    // The mean over one rank is what lies there; later backwards add to it.
    if (slots_) slots_->fill_missing();
    keep_parked();
    forget(parked_);
    is_reduced_ = true;
    num_unreduced_ = 0;
    return go_away();
  }
  open_buffer();
  unpark();
  zero_missing();
  narrow();
  if (!in_place_ && !shard_) {
    shard_ = context_.pool->take(bytes_of(layout_.shard_numel(), dtypes_.shard),
                                 tiers::Purpose::gradients);
  }
  if (!context_.over_ranks) return keep_own();
  squares_.assign(pieces_.size(), {});
  squared_numel_ = 0;
  reduces_in_stages() ? begin_shard_sum() : begin_whole_reduce();
  is_reducing_ = true;
}

void GroupGradients::mark_reduced() {
  slots_->mark_filled();
  is_reduced_ = true;
  num_unreduced_ = 0;
}

void GroupGradients::begin_whole_reduce() {
  std::function<void(int64_t, int64_t)> on_result;
  if (context_.takes_squares && dtypes_.shard == at::kFloat && !carried_) {
    on_result = [this](int64_t begin, int64_t end) { take_squares(begin, end); };
  }
  const bool accumulate = is_reduced_ && !in_place_;
  works_ = context_.traffic->reduce(shard(), full(), accumulate, unit_, std::move(on_result));
}

// Sums are not rounded between the stages: a shard that is narrower, or holds earlier gradients,
// gets them when they are complete.
void GroupGradients::begin_shard_sum() {
  const auto dtype = comm::sum_dtype(dtypes_.reduce);
  if (is_reduced_ || dtypes_.shard != dtype) {
    sums_ = context_.pool->take(bytes_of(layout_.shard_numel(), dtype), tiers::Purpose::gradients);
  }
  works_ = context_.traffic->sum_over_shards(sums(), full(), unit_);
  lacks_replicas_ = true;
}

void GroupGradients::begin_replica_sum() {
  if (lacks_replicas_) works_ = context_.traffic->sum_over_replicas(sums(), unit_);
}

void GroupGradients::finish_replica_sum() {
  if (!std::exchange(lacks_replicas_, false)) return;
  works_.wait();
  take_mean();
  is_reduced_ = true;
  go_away();
}

void GroupGradients::take_mean() {
  const auto mean = sums().mul_(mean_factor(context_.mesh->world().size()));
  if (!sums_) return;
  is_reduced_ ? shard().add_(mean) : shard().copy_(mean);
  sums_ = {};
}

at::Tensor GroupGradients::sums() const {
  return sums_ ? sums_.as(layout_.shard_numel(), comm::sum_dtype(dtypes_.reduce)) : shard();
}

// In the place of a reduction: this rank's own gradient.
void GroupGradients::keep_own() {
  if (!in_place_ && is_reduced_) {
    shard().add_(own_slice());
  } else if (!in_place_) {
    shard().copy_(own_slice());
  }
  squared_numel_ = 0;
  is_reducing_ = true;  // finish_reduce does the rest; there is nothing to wait for
}

void GroupGradients::finish_reduce() {
  if (!std::exchange(is_reducing_, false)) return;
  if (in_place_) {
    works_.wait();
  } else {
    works_.wait_for_results();
    context_.draining->add(std::move(full_), std::move(works_));
    works_ = {};
  }
  if (carried_) {
    own_slice().add_(carried_.as(layout_.shard_numel(), dtypes_.shard));
    carried_ = {};
  }
  received_.assign(received_.size(), false);
  num_unreduced_ = 0;
  if (lacks_replicas_) return;
  is_reduced_ = true;
  go_away();
}

void GroupGradients::advance_reduce() {
  if (is_reducing_) works_.advance();
}

void GroupGradients::take_squares(int64_t begin, int64_t end) {
  const auto* values = shard().const_data_ptr<float>();
  for (size_t i = 0; i < pieces_.size(); ++i) {
    const auto& piece = pieces_[i];
    const int64_t first = std::max(begin, piece.shard_offset);
    const int64_t last = std::min(end, piece.shard_offset + piece.numel());
    if (first < last) squares_[i].add(values + first, last - first);
  }
  squared_numel_ = end;
}

double GroupGradients::squares_of_piece(size_t index) const {
  if (tensor::is_pretended()) return 0;
  const bool is_known = squared_numel_ > 0 && squared_numel_ == layout_.shard_numel();
  if (is_known) return squares_[index].total();
  const auto gradient = of_piece(pieces_[index]);
  if (gradient.scalar_type() == at::kFloat && gradient.is_cpu()) {
    return sum_of_squares(gradient.const_data_ptr<float>(), gradient.numel());
  }
  const auto wide = gradient.to(at::kDouble);
  return wide.dot(wide).item<double>();
}

void GroupGradients::relocate(const memory::Relocation& relocation) {
  if (slots_) slots_->relocate(relocation);
  for (auto* block : {&full_, &wide_, &shard_, &sums_, &carried_}) relocation.move(*block);
  for (auto* gradients : {&parked_, &kept_}) {
    for (auto& gradient : *gradients) relocation.move(gradient, tiers::Purpose::gradients);
  }
}

void GroupGradients::drop() {
  drop_unreduced();
  if (away_) away_->forget();
  if (is_in_use_) {
    for (auto& gradient : kept_) used_.keep(std::exchange(gradient, at::Tensor()));
    used_.keep(std::exchange(full_, memory::Block()));
    used_.keep(std::exchange(shard_, memory::Block()));
  }
  forget(kept_);
  drop_slots();
  full_ = {};
  shard_ = {};
  is_reduced_ = false;
  squared_numel_ = 0;
}

void GroupGradients::drop_slots() {
  if (!slots_) return;
  is_in_use_ ? slots_->drop_into(used_) : slots_->drop();
}

void GroupGradients::end_use() {
  is_in_use_ = false;
  used_.release(context_.pool->ledger());
}

void GroupGradients::drop_unreduced() {
  finish_reduce();  // peers may still read the buffer
  finish_replica_sum();
  forget(parked_);
  if (slots_ && num_unreduced_ > 0) {  // a partial backward cannot be taken out of them again
    drop_slots();
    is_reduced_ = false;
  }
  carried_ = {};  // whoever drops the rest drops what was reduced too
  if (!(in_place_ && is_reduced_)) full_ = {};
  wide_ = {};
  received_.assign(received_.size(), false);
  num_unreduced_ = 0;
}

at::Tensor GroupGradients::zeros_of(int64_t numel) const {
  const auto device = context_.mesh->world().device();
  return at::zeros({numel}, at::TensorOptions().dtype(dtypes_.shard).device(device));
}

at::Tensor GroupGradients::of_piece(const Piece& piece) const {
  if (away_ && away_->is_away()) return away_->of_piece(piece);
  if (slots_) return slots_->view(piece.slot).view({-1}).narrow(0, piece.begin, piece.numel());
  if (single_rank_) {
    const auto& kept = kept_[piece.slot];
    // Unused in this backward: a zero, as it would be after a reduction.
    if (!kept.defined()) return zeros_of(piece.numel());
    return kept.view({-1}).narrow(0, piece.begin, piece.numel());
  }
  return shard().narrow(0, piece.shard_offset, piece.numel());
}

at::Tensor GroupGradients::shard() const {
  return in_place_ ? own_slice() : shard_.as(layout_.shard_numel(), dtypes_.shard);
}

}  // namespace fullshard::engine
