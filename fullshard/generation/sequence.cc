// SPDX-License-Identifier: Apache-2.0
#include "fullshard/generation/sequence.h"

namespace fullshard {

std::string_view finish_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::eos:
      return "eos";
    case FinishReason::stop:
      return "stop";
    case FinishReason::length:
      break;
  }
  return "length";
}

}  // namespace fullshard
