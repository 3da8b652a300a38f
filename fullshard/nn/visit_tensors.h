// SPDX-License-Identifier: Apache-2.0
// Finds the tensors inside arguments and results of a forward, whatever holds them.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstddef>
#include <map>
#include <optional>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

namespace fullshard::nn {
namespace visit_detail {

template <class T, template <class...> class Template>
inline constexpr bool kIs = false;
template <template <class...> class Template, class... Parts>
inline constexpr bool kIs<Template<Parts...>, Template> = true;

template <class T>
inline constexpr bool kIsArray = false;
template <class T, size_t size>
inline constexpr bool kIsArray<std::array<T, size>> = true;

template <class T>
inline constexpr bool kIsSequence = kIs<T, std::vector> || kIsArray<T>;
template <class T>
inline constexpr bool kIsMap = kIs<T, std::map> || kIs<T, std::unordered_map>;
template <class T>
inline constexpr bool kIsTuple = kIs<T, std::tuple> || kIs<T, std::pair>;

// Stands for a member of any type while members are counted; never called.
struct AnyMember {
  template <class T>
  operator T() const;
};
template <class Aggregate>
struct AnyBase {
  template <class T>
  requires(std::is_base_of_v<T, Aggregate> && !std::is_same_v<T, Aggregate>) operator T() const;
};

template <size_t>
using Member = AnyMember;

template <class T, class Indices>
inline constexpr bool kTakes = false;
template <class T, size_t... index>
inline constexpr bool kTakes<T, std::index_sequence<index...>> = requires {
  T{Member<index>{}...};
};
// Parentheses, unlike braces, do not spread initialisers over a C array.
template <class T, class Indices>
inline constexpr bool kTakesUnspread = false;
template <class T, size_t... index>
inline constexpr bool kTakesUnspread<T, std::index_sequence<index...>> = requires {
  T(Member<index>{}...);
};

inline constexpr size_t kMostMembers = 12;

// One more than kMostMembers stands for "too many".
template <class T, size_t count = kMostMembers + 1>
consteval size_t count_members() {
  if constexpr (count == 0 || kTakes<T, std::make_index_sequence<count>>) {
    return count;
  } else {
    return count_members<T, count - 1>();
  }
}

template <class T>
concept Aggregate =
    std::is_class_v<T> && std::is_aggregate_v<T> && !std::is_empty_v<T> && !requires {
  T{AnyBase<T>{}};
};

// A struct with base classes or with a C array cannot be taken apart.
template <class T>
concept Decomposable = Aggregate<T> && count_members<T>()
> 0 && (count_members<T>() == 1 || kTakesUnspread<T, std::make_index_sequence<count_members<T>()>>);

// A tuple of references to the members.
template <class T>
auto members_of(T& v) {
  constexpr size_t count = count_members<std::remove_const_t<T>>();
  static_assert(
      count <= kMostMembers,
      "a struct that goes through a unit's forward has at most 12 members: give it a "
      "member function template `void visit_tensors(F&& f)` that calls f for each tensor");
  if constexpr (count == 1) {
    auto& [a] = v;
    return std::tie(a);
  } else if constexpr (count == 2) {
    auto& [a, b] = v;
    return std::tie(a, b);
  } else if constexpr (count == 3) {
    auto& [a, b, c] = v;
    return std::tie(a, b, c);
  } else if constexpr (count == 4) {
    auto& [a, b, c, d] = v;
    return std::tie(a, b, c, d);
  } else if constexpr (count == 5) {
    auto& [a, b, c, d, e] = v;
    return std::tie(a, b, c, d, e);
  } else if constexpr (count == 6) {
    auto& [a, b, c, d, e, f] = v;
    return std::tie(a, b, c, d, e, f);
  } else if constexpr (count == 7) {
    auto& [a, b, c, d, e, f, g] = v;
    return std::tie(a, b, c, d, e, f, g);
  } else if constexpr (count == 8) {
    auto& [a, b, c, d, e, f, g, h] = v;
    return std::tie(a, b, c, d, e, f, g, h);
  } else if constexpr (count == 9) {
    auto& [a, b, c, d, e, f, g, h, i] = v;
    return std::tie(a, b, c, d, e, f, g, h, i);
  } else if constexpr (count == 10) {
    auto& [a, b, c, d, e, f, g, h, i, j] = v;
    return std::tie(a, b, c, d, e, f, g, h, i, j);
  } else if constexpr (count == 11) {
    auto& [a, b, c, d, e, f, g, h, i, j, k] = v;
    return std::tie(a, b, c, d, e, f, g, h, i, j, k);
  } else if constexpr (count == 12) {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l] = v;
    return std::tie(a, b, c, d, e, f, g, h, i, j, k, l);
  } else {
    return std::tuple<>();
  }
}

}  // namespace visit_detail

// Calls f for every tensor inside `value`, defined or not, always in the same order: tensors,
// optionals, vectors, arrays, pairs, tuples, values of maps, and plain structs of up to 12 members,
// nested as deep as you like. A class that has its own `visit_tensors(f)` is asked. Anything else
// (pointers, classes with constructors, structs with bases or C arrays) is passed over. Two passes
// over one unordered_map agree, and so do passes over a map and its copy when nothing was inserted.
template <class T, class F>
void visit_tensors(T& value, F&& f) {
  using Plain = std::remove_const_t<T>;
  namespace detail = visit_detail;
  if constexpr (std::is_same_v<Plain, at::Tensor>) {
    f(value);
  } else if constexpr (detail::kIs<Plain, std::optional>) {
    if (value) visit_tensors(*value, f);
  } else if constexpr (std::is_same_v<Plain, std::vector<bool>>) {
    // Its elements are not objects.
  } else if constexpr (detail::kIsSequence<Plain>) {
    for (auto& element : value) visit_tensors(element, f);
  } else if constexpr (detail::kIsMap<Plain>) {
    for (auto& [key, element] : value) visit_tensors(element, f);
  } else if constexpr (detail::kIsTuple<Plain>) {
    std::apply([&](auto&... parts) { (visit_tensors(parts, f), ...); }, value);
  } else if constexpr (requires { value.visit_tensors(f); }) {
    value.visit_tensors(f);
  } else if constexpr (detail::Decomposable<Plain>) {
    std::apply([&](auto&... parts) { (visit_tensors(parts, f), ...); }, detail::members_of(value));
  }
}

// The defined tensors inside the values, in order.
template <class... T>
std::vector<at::Tensor> collect_tensors(const T&... values) {
  std::vector<at::Tensor> tensors;
  const auto collect = [&tensors](const at::Tensor& tensor) {
    if (tensor.defined()) tensors.push_back(tensor);
  };
  (visit_tensors(values, collect), ...);
  return tensors;
}

}  // namespace fullshard::nn
