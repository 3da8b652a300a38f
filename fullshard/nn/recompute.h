// SPDX-License-Identifier: Apache-2.0
// Activation recomputation: forward keeps only the inputs, backward runs the body again.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>
#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <ranges>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "fullshard/base/error.h"
#include "fullshard/nn/unit_state.h"
#include "fullshard/nn/visit_tensors.h"

namespace fullshard {

// One call of a unit with its types erased: tensors in, tensors out. Lives as long as the autograd
// node that replays it, holds no tensors in between, and is used by one thread at a time.
class RecomputedCall : public c10::intrusive_ptr_target {
 public:
  // `owner` keeps the unit alive until the replay; empty when nothing owns it.
  RecomputedCall(const nn::UnitState& unit, std::shared_ptr<const void> owner);

  // Runs the body on these tensors; the defined tensors of its result.
  virtual std::vector<at::Tensor> record(const std::vector<at::Tensor>& inputs) = 0;
  virtual std::vector<at::Tensor> replay(const std::vector<at::Tensor>& inputs) = 0;

  const nn::UnitState& unit() const { return unit_; }
  // Unique in the process, so that ranks that are threads cannot mix up their calls.
  uint64_t id() const { return id_; }

 private:
  const nn::UnitState& unit_;
  std::shared_ptr<const void> owner_;
  uint64_t id_;
};

// Records the call now, without gradients, and puts a node into the graph that replays it in
// backward with the same random numbers and autocast; the outputs hang on that node. The node
// exists even when no input requires gradients. An integer output is not differentiable. An output
// that is itself an input comes back as a view of it. Undefined output gradients stay undefined:
// what only they feed is not computed.
//
// autograd::grad and backward(inputs) reach the inputs only; backward(inputs) reaches parameters
// too when an input of the call is asked for with them.
//
// Throws when the body writes one of its inputs in place (the replay would see it written), and in
// backward when second derivatives are asked for or when the replay gives other outputs: their
// number, shapes or dtypes tell that the forward is not deterministic.
std::vector<at::Tensor> run_recomputed(const c10::intrusive_ptr<RecomputedCall>& call,
                                       const std::vector<at::Tensor>& inputs);

// Whether a replay could change any gradient: an input or a parameter requires one.
bool any_requires_grad(const std::vector<at::Tensor>& tensors);

namespace recompute_detail {

template <class T>
inline constexpr bool kIsArrayRef = false;
template <class T>
inline constexpr bool kIsArrayRef<c10::ArrayRef<T>> = true;

// What only borrows its elements would dangle until backward.
template <class T>
inline constexpr bool kCanKeep =
    std::is_copy_constructible_v<T> && !std::ranges::view<T> && !kIsArrayRef<T>;

// The argument as the caller's value category asks: lvalues stay, rvalues are moved.
template <class Argument, class T>
decltype(auto) hand_over(T& value) {
  if constexpr (std::is_lvalue_reference_v<Argument>) {
    return (value);
  } else {
    return std::move(value);
  }
}

template <class Result, class Body, class... Arguments>
class TypedCall final : public RecomputedCall {
 public:
  TypedCall(const nn::UnitState& unit, std::shared_ptr<const void> owner, Body body,
            Arguments&&... arguments)
      : RecomputedCall(unit, std::move(owner)),
        body_(std::move(body)),
        arguments_(std::forward<Arguments>(arguments)...) {}

  // Moves the tensors out of the kept arguments: the autograd node saves them, so that they are
  // freed with its other saved variables.
  std::vector<at::Tensor> take_inputs() {
    std::vector<at::Tensor> inputs;
    nn::visit_tensors(arguments_, [&](at::Tensor& tensor) {
      is_defined_.push_back(tensor.defined());
      if (tensor.defined()) inputs.push_back(std::exchange(tensor, at::Tensor()));
    });
    return inputs;
  }

  std::vector<at::Tensor> record(const std::vector<at::Tensor>& inputs) override {
    result_.emplace(run(inputs));
    return nn::collect_tensors(*result_);
  }

  std::vector<at::Tensor> replay(const std::vector<at::Tensor>& inputs) override {
    return nn::collect_tensors(run(inputs));
  }

  // The recorded result, with the tensors that hang on the graph in place of its own.
  Result take_result(std::vector<at::Tensor> outputs) {
    Result result = std::move(*result_);
    result_.reset();
    size_t next = 0;
    nn::visit_tensors(result, [&](at::Tensor& tensor) {
      if (tensor.defined()) tensor = std::move(outputs[next++]);
    });
    return result;
  }

 private:
  Result run(const std::vector<at::Tensor>& inputs) {
    auto arguments = arguments_;
    size_t place = 0, next = 0;
    nn::visit_tensors(arguments, [&](at::Tensor& tensor) {
      if (is_defined_[place++]) tensor = inputs[next++];
    });
    return std::apply(
        [this](auto&... parts) -> Result { return body_(hand_over<Arguments>(parts)...); },
        arguments);
  }

  Body body_;
  std::tuple<std::decay_t<Arguments>...> arguments_;
  std::vector<bool> is_defined_;
  std::optional<Result> result_;
};

}  // namespace recompute_detail

// body(arguments...) recomputed in backward. Arguments are kept by copy; the tensors inside them
// and inside the result are those that visit_tensors finds, so gradients do not pass through
// others.
template <class Body, class... Arguments>
auto recompute_call(const nn::UnitState& unit, std::shared_ptr<const void> owner, Body body,
                    Arguments&&... arguments) {
  using Result = std::invoke_result_t<Body&, Arguments...>;
  if constexpr ((recompute_detail::kCanKeep<std::decay_t<Arguments>> && ...)) {
    using Kept = recompute_detail::TypedCall<Result, Body, Arguments...>;
    auto call = c10::make_intrusive<Kept>(unit, std::move(owner), std::move(body),
                                          std::forward<Arguments>(arguments)...);
    const std::vector<at::Tensor> inputs = call->take_inputs();
    return call->take_result(run_recomputed(call, inputs));
  } else {
    fail(
        "unit {}: an argument of forward cannot be kept until backward: it cannot be copied or "
        "only "
        "borrows its elements; pass a value such as std::vector, or turn recompute off",
        unit.class_name());
    return body(std::forward<Arguments>(arguments)...);
  }
}

}  // namespace fullshard
