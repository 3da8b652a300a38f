// SPDX-License-Identifier: Apache-2.0
// The text of the Error that an act ends with.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "fullshard/base/error.h"

namespace fullshard::comm {

template <class Act>
std::string error_of(const Act& act) {
  try {
    act();
  } catch (const Error& error) {
    return error.what();
  }
  ADD_FAILURE() << "no Error was thrown";
  return {};
}

}  // namespace fullshard::comm
