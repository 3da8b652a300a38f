// SPDX-License-Identifier: Apache-2.0
// The types of elements that tensor files name, and what they are in torch.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace fullshard {

struct ElementType {
  std::string_view name;                             // in safetensors: "BF16"
  int bits = 0;                                      // of one element
  at::ScalarType dtype = at::ScalarType::Undefined;  // Undefined: torch has none
};

// In the order in which the safetensors package lays out a file: widest first, as a whole.
std::span<const ElementType> element_types();

const ElementType* find_element_type(std::string_view name);  // null: unknown
const ElementType* find_element_type(at::ScalarType dtype);

// The types whose values are read, converted and written: those that models use. Others are only
// listed.
bool is_readable(at::ScalarType dtype);

// Bytes of one element; 0 for dtypes without elements.
int64_t element_bytes(at::ScalarType dtype);

// The product, or nothing if it overflows or a size is negative.
std::optional<int64_t> checked_numel(std::span<const int64_t> shape);

std::string format_shape(std::span<const int64_t> shape);  // "[2, 3]"

}  // namespace fullshard
