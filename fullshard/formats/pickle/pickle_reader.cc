// SPDX-License-Identifier: Apache-2.0
#include "fullshard/formats/pickle/pickle_reader.h"

#include "fullshard/formats/pickle/pickle_machine.h"

namespace fullshard::formats {

Pickle read_pickle(std::string_view bytes, const std::string& where, const PickleLimits& limits) {
  return PickleMachine(bytes, where, limits).run();
}

}  // namespace fullshard::formats
