// SPDX-License-Identifier: Apache-2.0
#include "fullshard/formats/element_type.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

namespace fullshard {
namespace {

constexpr auto kNone = at::ScalarType::Undefined;
constexpr std::array kTypes = {
    ElementType{"U64", 64, at::ScalarType::UInt64},
    ElementType{"I64", 64, at::kLong},
    ElementType{"F64", 64, at::kDouble},
    ElementType{"C64", 64, at::ScalarType::ComplexFloat},
    ElementType{"F32", 32, at::kFloat},
    ElementType{"U32", 32, at::ScalarType::UInt32},
    ElementType{"I32", 32, at::kInt},
    ElementType{"BF16", 16, at::kBFloat16},
    ElementType{"F16", 16, at::kHalf},
    ElementType{"U16", 16, at::ScalarType::UInt16},
    ElementType{"I16", 16, at::kShort},
    ElementType{"F8_E5M2FNUZ", 8, at::ScalarType::Float8_e5m2fnuz},
    ElementType{"F8_E4M3FNUZ", 8, at::ScalarType::Float8_e4m3fnuz},
    ElementType{"F8_E8M0", 8, at::ScalarType::Float8_e8m0fnu},
    ElementType{"F8_E4M3", 8, at::ScalarType::Float8_e4m3fn},
    ElementType{"F8_E5M2", 8, at::ScalarType::Float8_e5m2},
    ElementType{"I8", 8, at::kChar},
    ElementType{"U8", 8, at::kByte},
    ElementType{"F6_E3M2", 6, kNone},
    ElementType{"F6_E2M3", 6, kNone},
    ElementType{"F4", 4, kNone},
    ElementType{"BOOL", 8, at::kBool},
};

}  // namespace

std::span<const ElementType> element_types() { return kTypes; }

const ElementType* find_element_type(std::string_view name) {
  const auto* found = std::ranges::find(kTypes, name, &ElementType::name);
  return found == kTypes.end() ? nullptr : found;
}

const ElementType* find_element_type(at::ScalarType dtype) {
  const auto* found = std::ranges::find(kTypes, dtype, &ElementType::dtype);
  return dtype == kNone || found == kTypes.end() ? nullptr : found;
}

bool is_readable(at::ScalarType dtype) {
  constexpr std::array kReadable = {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16, at::kLong,
                                    at::kInt,    at::kShort, at::kChar, at::kByte,     at::kBool};
  return std::ranges::find(kReadable, dtype) != kReadable.end();
}

// Not c10::elementSize(), which needs libtorch for its error message.
int64_t element_bytes(at::ScalarType dtype) {
  switch (dtype) {
#define FULLSHARD_SIZE(type, name) \
  case at::ScalarType::name:       \
    return sizeof(type);
    AT_FORALL_SCALAR_TYPES_WITH_COMPLEX_AND_QINTS(FULLSHARD_SIZE)
#undef FULLSHARD_SIZE
    default:
      return 0;
  }
}

std::optional<int64_t> checked_numel(std::span<const int64_t> shape) {
  int64_t numel = 1;
  bool fits = true;
  for (const int64_t size : shape) {
    fits = fits && size >= 0 && !__builtin_mul_overflow(numel, size, &numel);
  }
  return fits ? std::optional(numel) : std::nullopt;
}

std::string format_shape(std::span<const int64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

}  // namespace fullshard
