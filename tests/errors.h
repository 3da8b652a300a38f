// SPDX-License-Identifier: Apache-2.0
// What a call that must fail said.
#pragma once

#include <string>

#include "fullshard/base/error.h"

namespace fullshard::testing {

// The text of the Error that `act` throws; "no error" when it returns.
template <class Act>
std::string message_of(const Act& act) {
  try {
    act();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace fullshard::testing
