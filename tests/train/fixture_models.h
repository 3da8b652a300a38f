// SPDX-License-Identifier: Apache-2.0
// The folder of tiny models that transformers wrote.
#pragma once

#include <string>

namespace fullshard::testing {

inline const std::string kModels = FULLSHARD_SOURCE_DIR "/tests/fixtures/models/";

}  // namespace fullshard::testing
