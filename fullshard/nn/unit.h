// SPDX-License-Identifier: Apache-2.0
// Units: modules whose forward can be surrounded by hooks, however it is called.
//
//   struct BlockImpl : fullshard::Unit { torch::Tensor forward(torch::Tensor x); … };
//   FULLSHARD_UNIT(Block);                       // in place of TORCH_MODULE(Block)
//
//   fullshard::Wrap<torch::nn::Linear> head(d, d);  // a module that one cannot edit
//
// block(x), block->forward(x), Sequential and AnyModule all run the hooks; parameter names do not
// change. What goes around them (a call through `this`, as<BlockImpl>()->forward) meets the error
// of a released parameter.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <tuple>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include "fullshard/nn/cast_tensors.h"
#include "fullshard/nn/class_name.h"
#include "fullshard/nn/forward_hooks.h"
#include "fullshard/nn/product_precision.h"
#include "fullshard/nn/recompute.h"
#include "fullshard/nn/saved_tensor_hooks.h"
#include "fullshard/nn/unit_state.h"
#include "fullshard/nn/visit_tensors.h"

namespace fullshard {

class Unit : public torch::nn::Module, public nn::UnitState {
 public:
  using torch::nn::Module::Module;
};

namespace unit_detail {

// `R (Class::*)(A...)`, const and noexcept or not, as R(A...).
template <class Pointer>
struct Forward;
template <class Class, class R, class... A>
struct Forward<R (Class::*)(A...)> {
  using Signature = R(A...);
  using Result = R;
};
template <class Class, class R, class... A>
struct Forward<R (Class::*)(A...) const> : Forward<R (Class::*)(A...)> {};
template <class Class, class R, class... A>
struct Forward<R (Class::*)(A...) noexcept> : Forward<R (Class::*)(A...)> {};
template <class Class, class R, class... A>
struct Forward<R (Class::*)(A...) const noexcept> : Forward<R (Class::*)(A...)> {};

}  // namespace unit_detail

// One public, plain member function `forward`: neither overloaded nor a template.
template <class Impl>
concept HasOneForward = requires {
  typename unit_detail::Forward<decltype(&Impl::forward)>::Signature;
};

// Its result is a value, which the hooks can look into.
template <class Impl>
concept ReturnsValue = HasOneForward<Impl> &&
    std::is_object_v<typename unit_detail::Forward<decltype(&Impl::forward)>::Result>;

namespace unit_detail {

template <class Impl>
struct SignatureOf {
  using type = void;  // refused by UnitHolder, with a sentence
};
template <HasOneForward Impl>
struct SignatureOf<Impl> {
  using type = typename Forward<decltype(&Impl::forward)>::Signature;
};

template <class Impl>
struct WithState : Impl, nn::UnitState {
  using Impl::Impl;
  WithState() = default;
  explicit WithState(const Impl& other) : Impl(other) {}
};

template <class Impl>
using UnitBase = std::conditional_t<std::is_base_of_v<nn::UnitState, Impl>, Impl, WithState<Impl>>;

template <class Impl>
concept IsCloneable = std::is_base_of_v<torch::nn::Cloneable<Impl>, Impl>;

// Impl says nothing of its own when it is printed.
template <class Impl>
concept PrintsItsName =
    std::is_same_v<decltype(&Impl::pretty_print), void (torch::nn::Module::*)(std::ostream&) const>;

}  // namespace unit_detail

// A module's forward may be virtual or not: neither word would be right for the ones below.
#if defined(__clang__)
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Winconsistent-missing-override"
#endif

// The user's module with the hooks around its forward. This is what a holder's arrow shows.
template <class Impl, class Signature = typename unit_detail::SignatureOf<Impl>::type>
class HookedForward;

template <class Impl, class Result, class... Parameters>
class HookedForward<Impl, Result(Parameters...)> : public unit_detail::UnitBase<Impl> {
  using Base = unit_detail::UnitBase<Impl>;

 public:
  using Base::Base;
  HookedForward() = default;
  explicit HookedForward(const Impl& other) requires unit_detail::IsCloneable<Impl> : Base(other) {}

  // The user's forward: the first form keeps its default arguments, the second takes braces.
  template <class... A>
  requires requires(Impl& impl, A&&... a) { impl.forward(std::forward<A>(a)...); }
  Result forward(A&&... arguments) { return call(std::forward<A>(arguments)...); }
  Result forward(Parameters... arguments) { return call(std::forward<Parameters>(arguments)...); }

  std::string class_name() const override { return nn::plain_class_name(typeid(Impl)); }
  bool runs_hooks() const override { return true; }
  // torch's own would show this adapter.
  std::string name() const { return class_name(); }

  void pretty_print(std::ostream& stream) const override {
    if constexpr (unit_detail::PrintsItsName<Impl>) {
      stream << class_name();
    } else {
      Impl::pretty_print(stream);
    }
  }

 protected:
  template <class... A>
  Result call(A&&... arguments) {
    if (this->is_plain()) [[likely]]
      return Impl::forward(std::forward<A>(arguments)...);
    const nn::ForwardCasts casts = this->casts();
    Result result = casts.inputs ? call_cast(*casts.inputs, std::index_sequence_for<A...>(),
                                             std::forward<A>(arguments)...)
                                 : call_hooked(std::forward<A>(arguments)...);
    if (casts.outputs) nn::cast_tensors(result, *casts.outputs);
    return result;
  }

 private:
  template <size_t index>
  using ParameterAt = std::tuple_element_t<index, std::tuple<Parameters...>>;

  // Fewer arguments than parameters when defaults fill the rest.
  template <size_t... index, class... A>
  Result call_cast(at::ScalarType input_dtype, std::index_sequence<index...>, A&&... arguments) {
    return call_hooked(
        nn::CastArgument<ParameterAt<index>, A>(std::forward<A>(arguments), input_dtype)
            .forward()...);
  }

  template <class... A>
  Result call_hooked(A&&... arguments) {
    nn::ForwardHooks* hooks = this->hooks();
    if (hooks == nullptr) return run_body(std::forward<A>(arguments)...);
    const std::vector<at::Tensor> inputs = nn::collect_tensors(arguments...);
    hooks->before_forward(inputs);
    Result result = run_guarded(*hooks, std::forward<A>(arguments)...);
    hooks->after_forward(inputs, nn::collect_tensors(result));
    return result;
  }

  template <class... A>
  Result run_guarded(nn::ForwardHooks& hooks, A&&... arguments) {
    try {
      return run_body(std::forward<A>(arguments)...);
    } catch (...) {
      hooks.forward_failed();
      throw;
    }
  }

  template <class... A>
  Result run_body(A&&... arguments) {
    const auto saved = nn::SavedTensorScope::of_unit(this->saved_tensors());
    const bool recomputes = this->recompute() && at::GradMode::is_enabled() &&
                            (any_requires_grad(nn::collect_tensors(arguments...)) ||
                             any_requires_grad(this->parameters()));
    if (!recomputes) return run_plain(std::forward<A>(arguments)...);
    const auto body = [this](auto&&... parts) -> Result {
      return this->run_plain(std::forward<decltype(parts)>(parts)...);
    };
    return recompute_call(*this, this->weak_from_this().lock(), body,
                          std::forward<A>(arguments)...);
  }

  // Both passes of a recomputed call come through here.
  template <class... A>
  Result run_plain(A&&... arguments) {
    const nn::ProductPrecisionScope products(this->products());
    return Impl::forward(std::forward<A>(arguments)...);
  }
};

// The type of the object itself: its single plain forward is what Sequential and AnyModule accept.
template <class Impl, class Signature = typename unit_detail::SignatureOf<Impl>::type>
class Around;

template <class Impl, class Result, class... Parameters>
class Around<Impl, Result(Parameters...)> : public HookedForward<Impl> {
 public:
  using HookedForward<Impl>::HookedForward;
  Around() = default;

  Result forward(Parameters... arguments) {
    return this->call(std::forward<Parameters>(arguments)...);
  }

  // Cloneable copies Impl, without what stands around it.
  std::shared_ptr<torch::nn::Module> clone(
      const std::optional<at::Device>& device = std::nullopt) const override {
    std::shared_ptr<torch::nn::Module> copy = Impl::clone(device);
    if constexpr (unit_detail::IsCloneable<Impl>) {
      auto around = std::make_shared<Around>(dynamic_cast<const Impl&>(*copy));
      around->set_recompute(this->recompute());
      around->set_vocabulary_part(this->vocabulary_part());
      return around;
    }
    return copy;
  }
};

#if defined(__clang__)
#pragma clang diagnostic pop
#endif

// A torch::nn::ModuleHolder whose calls go through the hooks. `Impl` may be any module; one that is
// no UnitState becomes one.
template <class Impl>
class UnitHolder : public torch::nn::ModuleHolder<Around<Impl>> {
  static_assert(std::is_base_of_v<torch::nn::Module, Impl>,
                "a unit is a torch::nn::Module: derive it from fullshard::Unit");
  static_assert(HasOneForward<Impl>,
                "a unit needs exactly one public member function forward, neither overloaded nor a "
                "template: rename the others, or give one forward default arguments");
  static_assert(!HasOneForward<Impl> || ReturnsValue<Impl>,
                "the forward of a unit returns its tensors by value (a tensor, tuple, vector or "
                "struct), not void or a reference: return what the next module needs");

 public:
  using torch::nn::ModuleHolder<Around<Impl>>::ModuleHolder;

  template <class... A>
  auto operator()(A&&... arguments)
      -> decltype(std::declval<HookedForward<Impl>&>().forward(std::forward<A>(arguments)...)) {
    return (*this)->forward(std::forward<A>(arguments)...);
  }

  // Shows the forward that takes default arguments.
  HookedForward<Impl>* operator->() { return this->get(); }
  const HookedForward<Impl>* operator->() const { return this->get(); }
};

namespace unit_detail {

template <class Module>
struct ImplOf {
  using type = Module;
};
template <class Holder>
requires requires { typename Holder::ContainedType; }
struct ImplOf<Holder> {
  using type = typename Holder::ContainedType;
};

}  // namespace unit_detail

// A module that one cannot edit, as a unit: Wrap<torch::nn::Linear> or Wrap<torch::nn::LinearImpl>.
template <class Module>
class Wrap : public UnitHolder<typename unit_detail::ImplOf<Module>::type> {
 public:
  using UnitHolder<typename unit_detail::ImplOf<Module>::type>::UnitHolder;
};

}  // namespace fullshard

// Defines the holder `Name` of the unit `NameImpl`, in place of TORCH_MODULE(Name).
#define FULLSHARD_UNIT(Name)                                \
  class Name : public ::fullshard::UnitHolder<Name##Impl> { \
   public:                                                  \
    using ::fullshard::UnitHolder<Name##Impl>::UnitHolder;  \
    using Impl [[maybe_unused]] = Name##Impl;               \
  }
