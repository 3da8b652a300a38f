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

// Looking at a tensor of a GPU would make the host wait for it at every unit. There the gradients
// are looked at once the norm has said that it is worth it: first_non_finite_parameter().
bool is_bad(const at::Tensor& tensor) {
  return !tensor.is_cuda() && tensor::has_non_finite(tensor);
}

}  // namespace

void NonFiniteWatch::after_forward(const std::string& owner,
                                   const std::vector<at::Tensor>& outputs) {
  ++num_forwards_;
  if (!watches_outputs_ || first_) return;
  if (std::none_of(outputs.begin(), outputs.end(), is_bad)) return;
  first_ = NonFinite{NonFinite::Pass::forward, num_forwards_, owner};
}

void NonFiniteWatch::before_backward(const std::string& owner, const at::Tensor& output_gradient) {
  ++num_backwards_;
  if (!watches_outputs_ || first_) return;
  if (is_bad(output_gradient)) {
    // It was made by whatever ran between the last sound gradient and this one.
    first_ = NonFinite{NonFinite::Pass::backward, num_backwards_, last_sound_};
  } else if (output_gradient.unsafeGetTensorImpl() != last_gradient_) {
    // A unit that returns what a unit inside it returned sees the same gradient: the inner one, who
    // saw it first, is nearer to what happens next.
    last_sound_ = owner;
    last_gradient_ = output_gradient.unsafeGetTensorImpl();
  }
}

void NonFiniteWatch::gradient(const std::string& owner, const std::string& parameter,
                              const at::Tensor& values) {
  if (!watches_parameter_gradients() || !is_bad(values)) return;
  first_ = NonFinite{NonFinite::Pass::backward, num_backwards_, owner, parameter};
}

void NonFiniteWatch::start_over() {
  first_.reset();
  last_sound_ = "the loss";
  last_gradient_ = nullptr;
  num_forwards_ = num_backwards_ = 0;
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
