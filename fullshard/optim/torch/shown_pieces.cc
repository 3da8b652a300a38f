// SPDX-License-Identifier: Apache-2.0
#include "fullshard/optim/torch/shown_pieces.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <utility>

#include "fullshard/engine/engine_access.h"
#include "fullshard/tensor/storage.h"
#include "fullshard/tensor/watched_alias.h"

namespace fullshard::optim {
namespace {

constexpr const char* kElsewhere =
    "the step of a torch optimizer: masters or gradients of this model rest outside the device "
    "(offload), where the optimizer cannot use them by itself; call pieces.step(optimizer) in the "
    "place of optimizer.step()";
constexpr const char* kScaled =
    "the step of a torch optimizer: these gradients are those of a loss that was multiplied by the "
    "loss scale; call pieces.step(optimizer), which takes it out again";
constexpr const char* kGone =
    "the step of a torch optimizer: the PieceParameters that gave it its tensors is gone, so "
    "nothing would make the new values visible; keep it as long as the optimizer";

bool rests_elsewhere(const ShardedModel& model) {
  const auto groups = engine::EngineAccess::of(model).trainable_groups();
  return std::any_of(groups.begin(), groups.end(), [](const engine::ParamGroup* group) {
    const auto& residence = group->spec().residence;
    return residence.parameters != tiers::Tier::device ||
           residence.gradients != tiers::Tier::device || residence.states != tiers::Tier::device;
  });
}

// Plain, so that zero_grad() may detach and drop it.
at::Tensor unusable(const at::Tensor& like, const std::string& why) {
  return tensor::throwing_tensor(like.sizes(), like.scalar_type(), why, like.device())
      .variable_data();
}

}  // namespace

ShownPieces::ShownPieces(ShardedModel model) : model_(std::move(model)) {
  for (const auto& piece : model_.pieces()) {
    tensors_.push_back(tensor::watched_alias(piece.master));
    published_.push_back(0);
  }
  shown_.resize(tensors_.size());
  engine::EngineAccess::of(model_).piece_holders().enter(*this);
}

ShownPieces::~ShownPieces() {
  engine::EngineAccess::of(model_).piece_holders().leave(*this);
  for (auto& tensor : tensors_) {
    const bool is_used = tensor.use_count() > 1;
    tensor.mutable_grad() = is_used ? unusable(tensor, kGone) : at::Tensor();
  }
}

std::string ShownPieces::why_unusable() const {
  if (rests_elsewhere(model_)) return kElsewhere;
  return model_.loss_scale() == 1 ? forbidden_ : kScaled;
}

bool ShownPieces::has_new_values() const {
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (tensors_[i]._version() != published_[i]) return true;
  }
  return false;
}

void ShownPieces::note_published() {
  for (size_t i = 0; i < tensors_.size(); ++i) published_[i] = tensors_[i]._version();
}

void ShownPieces::publish() {
  engine::EngineAccess::of(model_).note_stepped_by_torch();
  model_.publish();
}

ShownPieces::Shown ShownPieces::shown_of(const PieceView& piece, const at::Tensor& tensor) const {
  const bool is_copy = piece.gradient.scalar_type() != tensor.scalar_type() ||
                       piece.gradient.device() != tensor.device();
  Shown shown{.gradient = tensor::watched_alias(is_copy ? piece.gradient.to(tensor.options())
                                                        : piece.gradient),
              .is_copy = is_copy};
  shown.version = shown.gradient._version();
  return shown;
}

void ShownPieces::show_gradients() {
  const at::NoGradGuard no_grad;
  const auto pieces = model_.pieces();
  const auto why = why_unusable();
  for (size_t i = 0; i < tensors_.size(); ++i) {
    shown_[i] = {};
    if (pieces[i].gradient.defined()) {
      shown_[i] = why.empty() ? shown_of(pieces[i], tensors_[i])
                              : Shown{.gradient = unusable(tensors_[i], why)};
    }
    tensors_[i].mutable_grad() = shown_[i].gradient;
  }
  is_showing_ = true;
  shows_usable_ = why.empty();
}

// A clip that gradients were still to be multiplied by goes with them.
void ShownPieces::hide_gradients() {
  const bool were_cleared = has_cleared_any() && !has_kept_any();
  is_showing_ = shows_usable_ = false;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    shown_[i] = {};
    tensors_[i].mutable_grad() = at::Tensor();
  }
  if (were_cleared) model_.zero_grad();
}

bool ShownPieces::has_cleared_any() const {
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (shown_[i].gradient.defined() && !tensors_[i].grad().defined()) return true;
  }
  return false;
}

// A tensor that is here alone was given to no optimizer.
bool ShownPieces::has_kept_any() const {
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const bool is_used = tensors_[i].use_count() > 1 && tensors_[i].numel() > 0;
    if (is_used && tensors_[i].grad().defined()) return true;
  }
  return false;
}

bool ShownPieces::is_changed(size_t i) const {
  const auto& [gradient, is_copy, version] = shown_[i];
  if (!gradient.defined()) return false;
  return !tensors_[i].grad().is_same(gradient) || gradient._version() != version;
}

void ShownPieces::take_gradients() {
  bool any_changed = false;
  for (size_t i = 0; i < tensors_.size(); ++i) any_changed = any_changed || is_changed(i);
  if (!any_changed) return;
  const at::NoGradGuard no_grad;
  const auto pieces = model_.pieces();  // whose squares it forgets
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (!is_changed(i)) continue;
    const auto& now = tensors_[i].grad();
    if (!now.defined()) {
      pieces[i].gradient.zero_();
      shown_[i] = {};
    } else if (!now.is_same(shown_[i].gradient)) {
      pieces[i].gradient.copy_(now);
      shown_[i] = shown_of(pieces[i], tensors_[i]);
      tensors_[i].mutable_grad() = shown_[i].gradient;
    } else {
      if (shown_[i].is_copy) pieces[i].gradient.copy_(now);
      shown_[i].version = now._version();
    }
  }
}

void ShownPieces::scale_gradients(double factor, bool is_first) {
  const at::NoGradGuard no_grad;
  (void)model_.pieces();  // whose squares it forgets
  for (size_t i = 0; i < tensors_.size(); ++i) {
    auto& shown = shown_[i];
    if (!shown.gradient.defined()) continue;
    if (factor != 1 && (shown.is_copy || is_first)) shown.gradient.mul_(factor);
    shown.version = shown.gradient._version();
  }
}

void ShownPieces::step_with(double factor, const std::function<void()>& step) {
  const at::NoGradGuard no_grad;
  const bool is_usable = factor == 1 && shows_usable_;
  const auto pieces = model_.pieces();
  std::vector<at::Tensor> before;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    before.push_back(tensors_[i].grad());
    const bool was_cleared = is_showing_ && !shown_[i].gradient.defined();
    const bool is_given = is_showing_ && is_usable;
    if (!pieces[i].gradient.defined() || was_cleared || is_given) continue;
    // Widened first: a 16-bit gradient times the factor may not be a 16-bit number.
    auto gradient = pieces[i].gradient.to(tensors_[i].options());
    if (factor != 1) gradient = gradient.mul(factor);
    tensors_[i].mutable_grad() = gradient;
  }
  const auto restore = [&] {
    for (size_t i = 0; i < tensors_.size(); ++i) tensors_[i].mutable_grad() = before[i];
  };
  try {
    step();
  } catch (...) {
    restore();
    throw;
  }
  restore();
}

}  // namespace fullshard::optim
