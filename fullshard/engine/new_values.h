// SPDX-License-Identifier: Apache-2.0
// Giving a sharded model new values from outside the training loop.
#pragma once

#include <functional>
#include <string>

#include "fullshard/engine/engine.h"

namespace fullshard::engine {

// Collective. Runs `write`, which fills this rank's masters and what is whole on every rank, and
// then makes the values visible to all ranks. What one rank's `write` throws all of them throw; the
// model counts as one without values then, and a forward says so. `what` names the change.
void replace_values(Engine& engine, const std::string& what, const std::function<void()>& write);

}  // namespace fullshard::engine
