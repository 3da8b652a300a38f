// SPDX-License-Identifier: Apache-2.0
// The headings under which `--help` lists the flags that several commands share.
#pragma once

namespace fullshard::cli::groups {

inline constexpr const char* kModel = "Model and data";
inline constexpr const char* kTraining = "Training";
inline constexpr const char* kSharding = "Sharding and precision";
inline constexpr const char* kOutput = "Output";

}  // namespace fullshard::cli::groups
