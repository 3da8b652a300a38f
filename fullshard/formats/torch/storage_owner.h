// SPDX-License-Identifier: Apache-2.0
// Which tensor of a pickle a storage of torch's belongs to, for messages about damaged values.
#pragma once

#include <string>
#include <string_view>

#include "fullshard/formats/pickle/pickle_value.h"

namespace fullshard::formats {

// The keys that lead to the first use of a storage: "optimizer_state_dict.state.0.exp_avg". Empty:
// the pickle is that tensor itself, or does not use the storage.
std::string storage_owner(const PickleValue& root, std::string_view storage);

}  // namespace fullshard::formats
