// SPDX-License-Identifier: Apache-2.0
// Casts the floating tensors inside arguments and results of a forward.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <type_traits>
#include <utility>

#include "fullshard/base/error.h"
#include "fullshard/nn/visit_tensors.h"

namespace fullshard::nn {

// Integers, bool, complex numbers and undefined tensors stay as they are.
inline bool needs_cast(const at::Tensor& tensor, at::ScalarType dtype) {
  return tensor.defined() && tensor.is_floating_point() && tensor.scalar_type() != dtype;
}

// Whether any tensor that visit_tensors finds in the value would change.
template <class T>
bool any_needs_cast(const T& value, at::ScalarType dtype) {
  bool any = false;
  visit_tensors(value, [&](const at::Tensor& tensor) { any = any || needs_cast(tensor, dtype); });
  return any;
}

// Puts casts in the place of the floating tensors of another dtype; gradients pass through them.
template <class T>
void cast_tensors(T& value, at::ScalarType dtype) {
  visit_tensors(value, [dtype](at::Tensor& tensor) {
    if (needs_cast(tensor, dtype)) tensor = tensor.to(dtype);
  });
}

// One argument of a call with its floating tensors cast: the caller's own object when nothing
// changes, else a copy with the casts in it. `Argument` is a forwarding type, `Parameter` what the
// function takes. What it takes by non-const reference belongs to the caller (a cache, say) and is
// passed as it is. Lives as long as the call.
template <class Parameter, class Argument>
class CastArgument {
  using Value = std::remove_cvref_t<Argument>;
  static constexpr bool kBelongsToCaller =
      std::is_lvalue_reference_v<Parameter> && !std::is_const_v<std::remove_reference_t<Parameter>>;
  static constexpr bool kCanCopy =
      !std::is_array_v<Value> && std::is_constructible_v<Value, Argument&&>;

 public:
  CastArgument(Argument&& argument, at::ScalarType dtype) : argument_(argument) {
    if constexpr (!kBelongsToCaller) {
      if (!any_needs_cast(argument, dtype)) return;
      if constexpr (kCanCopy) {
        copy_.emplace(std::forward<Argument>(argument));
        cast_tensors(copy_->value, dtype);
      } else {
        fail(
            "an argument of forward holds tensors that are to be cast to {}, but cannot be copied; "
            "pass it as an rvalue, cast its tensors yourself, or set cast_forward_inputs to false",
            c10::toString(dtype));
      }
    }
  }
  CastArgument(const CastArgument&) = delete;
  CastArgument& operator=(const CastArgument&) = delete;

  // Once: an rvalue is handed over as one.
  Argument&& forward() {
    if constexpr (!kBelongsToCaller && kCanCopy) {
      if (copy_) return static_cast<Argument&&>(copy_->value);
    }
    return static_cast<Argument&&>(argument_);
  }

 private:
  struct Copy {
    explicit Copy(Argument&& argument) : value(std::forward<Argument>(argument)) {}
    Value value;
  };
  struct Nothing {};

  std::remove_reference_t<Argument>& argument_;
  std::conditional_t<kCanCopy, std::optional<Copy>, Nothing> copy_;
};

}  // namespace fullshard::nn
