// SPDX-License-Identifier: Apache-2.0
#include "fullshard/nn/unit_state.h"

#include "fullshard/nn/class_name.h"

namespace fullshard::nn {

std::string UnitState::class_name() const { return plain_class_name(typeid(*this)); }

}  // namespace fullshard::nn
