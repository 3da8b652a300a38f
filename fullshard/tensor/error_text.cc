// SPDX-License-Identifier: Apache-2.0
#include "fullshard/tensor/error_text.h"

#include <c10/util/Exception.h>

namespace fullshard {

std::string error_text(const std::exception& error) {
  const auto* of_libtorch = dynamic_cast<const c10::Error*>(&error);
  return of_libtorch ? of_libtorch->what_without_backtrace() : error.what();
}

}  // namespace fullshard
