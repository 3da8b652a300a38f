// SPDX-License-Identifier: Apache-2.0
// Which pass over which unit this thread is in, for whoever wants to say when something happened:
// a plan, where memory is fullest. Of the model whose unit began last.
#pragma once

#include <string>

namespace fullshard::engine {

struct PresentPass {
  enum class Kind { none, forward, backward };
  Kind kind = Kind::none;
  std::string unit{};  // its path; empty: the root
};

const PresentPass& present_pass();

}  // namespace fullshard::engine
