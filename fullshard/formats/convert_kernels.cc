// SPDX-License-Identifier: Apache-2.0
#include "fullshard/formats/convert_kernels.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <cstring>
#include <type_traits>

namespace fullshard::formats {
namespace {

template <class Type>
constexpr bool kIsNarrow = std::is_same_v<Type, c10::Half> || std::is_same_v<Type, c10::BFloat16>;

template <class To, class From>
inline To cast(From value) {
  if constexpr (kIsNarrow<From>) {
    return cast<To>(static_cast<float>(value));
  } else if constexpr (std::is_same_v<To, bool>) {
    return value != From(0);
  } else if constexpr (kIsNarrow<To>) {
    return To(static_cast<float>(value));
  } else if constexpr (std::is_integral_v<To> && std::is_floating_point_v<From>) {
    return static_cast<To>(static_cast<int64_t>(value));
  } else {
    return static_cast<To>(value);
  }
}

template <class To, class From>
void convert(const void* from, void* to, int64_t numel) {
  const auto* source = static_cast<const From*>(from);
  auto* target = static_cast<To*>(to);
  for (int64_t i = 0; i < numel; ++i) target[i] = cast<To>(source[i]);
}

// Calls use(value) with a value of the type that a dtype stands for.
template <class Use>
void with_type(at::ScalarType dtype, const Use& use) {
  switch (dtype) {
    case at::kDouble:
      return use(double{});
    case at::kFloat:
      return use(float{});
    case at::kHalf:
      return use(c10::Half{});
    case at::kBFloat16:
      return use(c10::BFloat16{});
    case at::kLong:
      return use(int64_t{});
    case at::kInt:
      return use(int32_t{});
    case at::kShort:
      return use(int16_t{});
    case at::kChar:
      return use(int8_t{});
    case at::kByte:
      return use(uint8_t{});
    case at::kBool:
      return use(bool{});
    default:
      fail_as(ErrorKind::input, "elements: {} cannot be converted", c10::toString(dtype));
  }
}

}  // namespace

void convert_elements(const ElementSpan& from, const ElementSpan& to) {
  if (from.numel == 0) return;
  if (from.dtype == to.dtype) {
    std::memcpy(to.data, from.data, static_cast<size_t>(from.bytes()));
    return;
  }
  with_type(from.dtype, [&](auto source) {
    with_type(to.dtype, [&](auto target) {
      convert<decltype(target), decltype(source)>(from.data, to.data, from.numel);
    });
  });
}

}  // namespace fullshard::formats
