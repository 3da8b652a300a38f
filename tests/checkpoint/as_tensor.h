// SPDX-License-Identifier: Apache-2.0
// Borrowed elements as a tensor, for sources that tests make.
#pragma once

#include <ATen/ops/from_blob.h>

#include "fullshard/formats/element_span.h"

namespace fullshard::testing {

inline at::Tensor as_tensor(const ElementSpan& elements) {
  return at::from_blob(elements.data, {elements.numel}, elements.dtype);
}

}  // namespace fullshard::testing
