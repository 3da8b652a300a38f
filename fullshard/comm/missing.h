// SPDX-License-Identifier: Apache-2.0
// The rank that all others blame when a call cannot end, and why: what one rank finds out, tells
// the others through a store or shared memory, and puts into its own message.
#pragma once

#include <string>

#include "fullshard/comm/backend.h"

namespace fullshard::comm {

struct Missing {
  int rank = 0;
  std::string how;   // "died", "failed: ...", "has left", "has not come for 600 s (step timeout)"
  std::string last;  // "its last act: ..."
  std::string hint;

  // The Error's text for a rank that waited in `call`.
  std::string message(int own_rank, const Call& call) const;
  // The same for what `subject` tells: "rank 0: all_gather (group world, sequence 3)".
  std::string message(int own_rank, const std::string& subject) const;

  // As one text. Where that is cut off, only the end of `how` is lost.
  std::string encoded() const;
  static Missing decoded(const std::string& text);
};

// Free text as one line.
std::string one_line(std::string text);

}  // namespace fullshard::comm
