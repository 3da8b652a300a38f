// SPDX-License-Identifier: Apache-2.0
#include "fullshard/engine/gradients/non_finite_watch.h"

#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <tuple>

#include "fullshard/comm/communicator.h"
#include "fullshard/tensor/non_finite.h"

namespace fullshard::engine {
namespace {

// What one rank tells the others; names are cut to fit.
struct Message {
  int64_t is_found = 0;
  int64_t pass = 0;
  int64_t order = 0;
  char where[120] = {};
  char parameter[120] = {};
};

void copy_text(char (&to)[120], const std::string& from) {
  std::memcpy(to, from.data(), std::min(from.size(), sizeof(to) - 1));
}

Message message_of(const std::optional<NonFinite>& own) {
  Message message;
  if (!own) return message;
  message.is_found = 1;
  message.pass = static_cast<int64_t>(own->pass);
  message.order = own->order;
  copy_text(message.where, own->where);
  copy_text(message.parameter, own->parameter);
  return message;
}

bool is_on_gpu(const at::Tensor& tensor) { return tensor.defined() && tensor.is_cuda(); }

}  // namespace

c10::weak_intrusive_ptr<c10::TensorImpl> NonFiniteWatch::no_gradient() {
  return c10::weak_intrusive_ptr<c10::TensorImpl>(c10::intrusive_ptr<c10::TensorImpl>());
}

// Looking at a tensor of a GPU from here would make the host wait for it at every unit.
void NonFiniteWatch::see_on_device(NonFinite sight, const std::vector<at::Tensor>& tensors) {
  for (const auto& tensor : tensors) {
    if (!is_on_gpu(tensor)) continue;
    flags_.look_at(static_cast<int64_t>(num_sights_), tensor.detach());
    if (sights_.size() <= num_sights_) sights_.resize(num_sights_ + 1);
    sights_[num_sights_++] = sight;
  }
}

void NonFiniteWatch::after_forward(const std::string& owner,
                                   const std::vector<at::Tensor>& outputs) {
  ++num_forwards_;
  if (!watches_outputs_ || first_) return;
  const NonFinite sight{NonFinite::Pass::forward, num_forwards_, owner};
  see_on_device(sight, outputs);
  const auto is_bad = [](const at::Tensor& output) {
    return !is_on_gpu(output) && tensor::has_non_finite(output);
  };
  if (std::any_of(outputs.begin(), outputs.end(), is_bad)) first_ = sight;
}

void NonFiniteWatch::before_backward(const std::string& owner, const at::Tensor& output_gradient) {
  ++num_backwards_;
  if (!watches_outputs_ || first_) return;
  // It was made by whatever ran between the last sound gradient and this one.
  const NonFinite sight{NonFinite::Pass::backward, num_backwards_, last_sound_};
  if (is_on_gpu(output_gradient)) {
    see_on_device(sight, {output_gradient});  // while no flag is raised before, it was sound
  } else if (tensor::has_non_finite(output_gradient)) {
    first_ = sight;
    return;
  }
  note_sound(owner, output_gradient);
}

void NonFiniteWatch::note_sound(const std::string& owner, const at::Tensor& output_gradient) {
  // A unit that returns what a unit inside it returned sees the same gradient: the inner one, who
  // saw it first, is nearer to what happens next.
  const auto version = static_cast<int64_t>(output_gradient._version());
  const bool is_same = version == last_version_ &&
                       output_gradient.unsafeGetTensorImpl() == last_gradient_._unsafe_get_target();
  if (is_same) return;
  last_sound_ = owner;
  last_version_ = version;
  last_gradient_ = c10::weak_intrusive_ptr<c10::TensorImpl>(output_gradient.getIntrusivePtr());
}

void NonFiniteWatch::gradient(const std::string& owner, const std::string& parameter,
                              const at::Tensor& values) {
  if (!watches_parameter_gradients() || is_on_gpu(values)) return;
  if (!tensor::has_non_finite(values)) return;
  first_ = NonFinite{NonFinite::Pass::backward, num_backwards_, owner, parameter};
}

std::optional<NonFinite> NonFiniteWatch::first() const {
  if (first_) return first_;
  const auto flag = flags_.first();
  if (!flag || *flag >= static_cast<int64_t>(sights_.size())) return std::nullopt;
  return sights_[static_cast<size_t>(*flag)];
}

void NonFiniteWatch::start_over() {
  first_.reset();
  flags_.clear();
  last_sound_ = "the loss";
  last_gradient_ = no_gradient();
  num_forwards_ = num_backwards_ = 0;
  num_sights_ = num_kept_;
}

std::string FirstNonFinite::text() const {
  const auto on = fmt::format(" on rank {}", rank);
  if (what.pass == NonFinite::Pass::forward) return "the forward of " + what.where + on;
  if (what.parameter.empty()) return "the backward of " + what.where + on;
  return fmt::format("the gradient of parameter '{}' of {}{}", what.parameter, what.where, on);
}

std::optional<FirstNonFinite> first_of_all_ranks(const Communicator& ranks,
                                                 const std::optional<NonFinite>& own) {
  const Message mine = message_of(own);
  const auto bytes = static_cast<int64_t>(sizeof(Message));
  auto part = at::zeros({bytes}, at::kByte);
  std::memcpy(part.data_ptr(), &mine, sizeof(Message));
  auto all = at::zeros({bytes * ranks.size()}, at::kByte);
  ranks.all_gather(all, part, "non-finite values").wait();

  std::optional<FirstNonFinite> first;
  const auto key = [](const FirstNonFinite& found) {
    return std::tuple(found.what.pass, found.what.order, found.rank);
  };
  for (int rank = 0; rank < ranks.size(); ++rank) {
    Message message;
    std::memcpy(&message, all.const_data_ptr<uint8_t>() + rank * bytes, sizeof(Message));
    if (message.is_found == 0) continue;
    const FirstNonFinite found{rank,
                               {static_cast<NonFinite::Pass>(message.pass), message.order,
                                message.where, message.parameter}};
    if (!first || key(found) < key(*first)) first = found;
  }
  return first;
}

}  // namespace fullshard::engine
