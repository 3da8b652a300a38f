// SPDX-License-Identifier: Apache-2.0
#include "fullshard/comm/shm/shm_call.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "fullshard/base/error.h"

namespace fullshard::comm {

ByteRows ByteRows::of(const at::Tensor& rows) {
  const auto element = static_cast<int64_t>(rows.element_size());
  ByteRows bytes;
  bytes.begin = static_cast<std::byte*>(rows.data_ptr());
  bytes.num_rows = rows.dim() == 2 ? rows.size(0) : 1;
  bytes.row_bytes = element * (rows.dim() == 2 ? rows.size(1) : rows.numel());
  bytes.row_stride = bytes.num_rows > 1 ? element * rows.stride(0) : bytes.row_bytes;
  return bytes;
}

ShmCall::ShmCall(std::shared_ptr<const ShmGroup> group, std::shared_ptr<ShmArena> arena,
                 ShmWatch& watch, const Call& call)
    : terms_(call),
      group_(std::move(group)),
      arena_(std::move(arena)),
      watch_(watch),
      operation_(call.operation),
      unit_(call.unit),
      limit_(call.limit) {
  if (call.terms != nullptr) larger_ = *call.terms;
}

void ShmCall::issue(uint64_t ticket) {
  ticket_ = ticket;
  prepare();
  if (larger_) terms_ = *larger_;
  watch_.note(act(), CallProgress::issued);
  CallSlot& own = slot(group_->rank());
  own.terms = terms_;
  own.input = input_;
  own.output = output_;
  own.output_is_whole = output_is_whole_;
  own.issued = ticket_;
  group_->ring_others();
}

bool ShmCall::advance() {
  switch (phase_) {
    case Phase::issued:
      if (!all_issued()) return false;
      read_peers();
      if (spreads()) {
        slot(group_->rank()).reduced = ticket_;
        group_->ring_others();
        phase_ = Phase::spreading;
      } else {
        publish_drained();
      }
      return true;
    case Phase::spreading:
      for (int rank = 0; rank < group_->size(); ++rank) {
        if (is_behind(rank)) return false;
      }
      spread();
      publish_drained();
      return true;
    case Phase::draining:
      for (int rank = 0; rank < group_->size(); ++rank) {
        if (is_behind(rank)) return false;
      }
      staged_.clear();
      forget();
      phase_ = Phase::retired;
      return true;
    case Phase::retired:
      return false;
  }
  return false;
}

void ShmCall::publish_drained() {
  slot(group_->rank()).drained = ticket_;
  group_->ring_others();
  phase_ = Phase::draining;
  if (!peers_read_caller_) forget();
}

// Tickets only grow, and a rank takes a slot again only after all have drained it.
bool ShmCall::is_behind(int rank) const {
  switch (phase_) {
    case Phase::issued:
      return slot(rank).issued.load() < ticket_;
    case Phase::spreading:
      return needs(rank) && slot(rank).reduced.load() < ticket_;
    case Phase::draining:
      return slot(rank).drained.load() < ticket_;
    case Phase::retired:
      return false;
  }
  return false;
}

bool ShmCall::all_issued() {
  for (; agreed_ < group_->size(); ++agreed_) {
    if (is_behind(agreed_)) return false;
    check_agreement(agreed_);
  }
  return true;
}

void ShmCall::check_agreement(int rank) const {
  if (slot(rank).terms == terms_) return;
  // The lower rank first, so that both sides give the same message.
  const int low = std::min(rank, group_->rank());
  const int high = std::max(rank, group_->rank());
  const CallTerms terms[] = {slot(low).terms, slot(high).terms};
  const int ranks[] = {watch_.name_of_rank(group_->domain_rank(low)),
                       watch_.name_of_rank(group_->domain_rank(high))};
  const auto disagreement = find_disagreement(terms, ranks, group_->name());
  if (disagreement) watch_.disagree(*disagreement);
}

bool ShmCall::has_reached(Stage stage) const {
  if (phase_ == Phase::retired) return true;
  if (phase_ != Phase::draining || stage == Stage::retired) return false;
  return stage == Stage::result || !peers_read_caller_;
}

bool ShmCall::is_awaited(int domain_rank) const {
  for (int rank = 0; rank < group_->size(); ++rank) {
    if (group_->domain_rank(rank) == domain_rank) return is_behind(rank);
  }
  return false;
}

std::vector<int> ShmCall::awaited() const {
  std::vector<int> ranks;
  for (int rank = 0; rank < group_->size(); ++rank) {
    if (is_behind(rank)) ranks.push_back(group_->domain_rank(rank));
  }
  return ranks;
}

Place ShmCall::place_of(const std::byte* begin, int64_t bytes) const {
  return *group_->memory().find(begin, bytes, group_->domain_rank(group_->rank()));
}

std::byte* ShmCall::stage(int64_t bytes) {
  staged_.push_back(ShmArena::allocate(arena_, bytes));
  return staged_.back().get();
}

Place ShmCall::expose(const ByteRows& rows) {
  const auto& memory = group_->memory();
  const int64_t extent = rows.row_stride * (rows.num_rows - 1) + rows.row_bytes;
  if (!is_inline(rows.bytes())) {
    if (auto place = memory.find(rows.begin, extent, group_->domain_rank(group_->rank()))) {
      place->row_stride = rows.row_stride;
      peers_read_caller_ = true;
      return *place;
    }
  }
  Place place = is_inline(rows.bytes()) ? group_->inline_place(group_->rank(), ticket_)
                                        : place_of(stage(rows.bytes()), rows.bytes());
  place.row_stride = rows.row_bytes;
  for (int64_t row = 0; row < rows.num_rows && rows.row_bytes > 0; ++row) {
    std::memcpy(memory.address(place) + row * rows.row_bytes, rows.row(row), rows.row_bytes);
  }
  return place;
}

ByteRows ShmCall::input_of(int rank) const {
  const Place& place = slot(rank).input;
  return {group_->memory().address(place), 0, 0, place.row_stride};
}

std::byte* ShmCall::output_of(int rank) const {
  return group_->memory().address(slot(rank).output);
}

}  // namespace fullshard::comm
