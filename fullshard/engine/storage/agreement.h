// SPDX-License-Identifier: Apache-2.0
// All ranks must hold the same model, and fail alike; whoever does not is told where it differs.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fullshard/base/error.h"
#include "fullshard/comm/communicator.h"
#include "fullshard/engine/plan/wrap.h"

namespace fullshard::engine {

// True when there is nobody to compare with: one rank, or a pretence of many.
bool is_alone(const Communicator& everyone);

// Collective. Compares names, shapes and dtypes of the units' parameters and buffers, and
// requires_grad; the error, the same on every rank, names the first difference and the ranks that
// have it. Parameters are deferred on all ranks or on none, unless rank 0's values are `taken`.
void check_ranks_agree(const Communicator& everyone, const WrapPlan& plan, bool taken);

// Collective. Every rank's text, in order of ranks. `what` names the call.
std::vector<std::string> gather_texts(const Communicator& everyone, const std::string& text,
                                      std::string_view what);

// What `body` throws, without torch's backtrace; nothing when it returns.
std::optional<Error> error_of(const std::function<void()>& body);

// Collective. Throws the same error on every rank when any of them has one: that of the lowest
// rank, which it names unless all have the same.
void throw_alike(const Communicator& everyone, const std::optional<Error>& own,
                 std::string_view what);

}  // namespace fullshard::engine
