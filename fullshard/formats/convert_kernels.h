// SPDX-License-Identifier: Apache-2.0
// Elements of one dtype as elements of another.
#pragma once

#include "fullshard/formats/element_span.h"

namespace fullshard::formats {

// Converts all elements of `from` into `to`, rounded as torch's copy_ does. Both dtypes must be
// readable (element_type.h); equal dtypes are copied.
void convert_elements(const ElementSpan& from, const ElementSpan& to);

}  // namespace fullshard::formats
