#include "fullshard/formats/pickle_reader.h"

#include "fullshard/formats/pickle_machine.h"

namespace fullshard {

Pickle read_pickle(std::string_view bytes, const std::string& where, const PickleLimits& limits) {
  return PickleMachine(bytes, where, limits).run();
}

}  // namespace fullshard
