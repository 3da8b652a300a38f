// SPDX-License-Identifier: Apache-2.0
#include "fullshard/engine/passes/piece_holders.h"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <utility>

namespace fullshard::engine {

void PieceHolders::leave(PieceHolder& holder) { std::erase(holders_, &holder); }

bool PieceHolders::has_new_values() const {
  return std::any_of(holders_.begin(), holders_.end(),
                     [](const PieceHolder* holder) { return holder->has_new_values(); });
}

PieceHolders::News PieceHolders::ask() {
  const auto any = [this](bool (PieceHolder::*is)() const) {
    return std::any_of(holders_.begin(), holders_.end(),
                       [is](const PieceHolder* holder) { return (holder->*is)(); });
  };
  auto votes = at::zeros({3}, at::kLong);
  auto* const vote = votes.mutable_data_ptr<int64_t>();
  vote[0] = any(&PieceHolder::has_new_values) ? 1 : 0;
  vote[1] = any(&PieceHolder::has_cleared_any) ? 1 : 0;
  vote[2] = any(&PieceHolder::has_kept_any) ? 1 : 0;
  if (!is_alone()) {
    mesh_.everyone().all_reduce(votes, ReduceOp::max, "what torch's optimizer did").wait();
  }
  const News news{.values = vote[0] != 0, .cleared = vote[1] != 0 && vote[2] == 0};
  may_have_values_ = is_showing_ || news.values;
  if (!news.cleared) {
    for (auto* holder : holders_) holder->take_gradients();
  }
  return news;
}

void PieceHolders::note_published() {
  may_have_values_ = false;
  for (auto* holder : holders_) holder->note_published();
}

void PieceHolders::publish() {
  if (!holders_.empty()) holders_.front()->publish();
}

void PieceHolders::show() {
  if (holders_.empty()) return;
  if (shares_copy_) mesh_.everyone().barrier("the end of a backward");
  is_showing_ = true;
  may_have_values_ = true;
  show_again();
}

void PieceHolders::show_again() {
  if (!is_showing_) return;
  for (auto* holder : holders_) holder->show_gradients();
}

void PieceHolders::hide() {
  if (!is_showing_) return;
  is_showing_ = false;
  may_have_values_ = may_have_values_ || has_new_values();
  for (auto* holder : holders_) holder->hide_gradients();
}

bool PieceHolders::scale(double factor) {
  bool is_first = true;
  for (auto* holder : holders_) {
    if (!is_showing_ || !holder->shows_usable_gradients()) continue;
    holder->scale_gradients(factor, std::exchange(is_first, false));
  }
  return !is_first;
}

}  // namespace fullshard::engine
