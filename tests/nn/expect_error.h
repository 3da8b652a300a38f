// SPDX-License-Identifier: Apache-2.0
// The text of the error that a call ends with.
#pragma once

#include <string>

#include "fullshard/base/error.h"

namespace fullshard::nn {

template <class Call>
std::string error_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace fullshard::nn
