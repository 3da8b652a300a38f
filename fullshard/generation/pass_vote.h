// SPDX-License-Identifier: Apache-2.0
// Passes of a model whose units are gathered from all ranks in every pass: ranks make as many of
// them as the one that makes the most, however many tokens each of them wants (transformers calls
// this synced_gpus).
#pragma once

#include "fullshard/comm/communicator.h"

namespace fullshard::generation {

// What a pass goes through, from little to much.
enum class PassKind {
  none,    // this rank is done
  decode,  // all units, or those of the decoder
  encode,  // those of the encoder before them
};

// One thread of every rank. A rank that is gone, or late by the limit of a step, ends the wait with
// an Error that names it.
class PassVote {
 public:
  explicit PassVote(const Communicator& everyone) : everyone_(everyone) {}

  // Collective. The most that any rank wants, which all of them make; none: all are done.
  PassKind agree(PassKind own) const;

 private:
  Communicator everyone_;
};

}  // namespace fullshard::generation
