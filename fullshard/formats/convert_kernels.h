// SPDX-License-Identifier: Apache-2.0
// Elements of one dtype as elements of another.
#pragma once

#include "fullshard/formats/element_span.h"

namespace fullshard::formats {

// As many as `from` has, into `to`, rounded as torch's copy_ does. Both dtypes are readable ones
// (element_type.h); equal ones are copied.
void convert_elements(const ElementSpan& from, const ElementSpan& to);

}  // namespace fullshard::formats
