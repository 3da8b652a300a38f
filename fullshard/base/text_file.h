// SPDX-License-Identifier: Apache-2.0
// Text files that are read whole: of a bounded size, and without waiting for anybody. What stands
// where a file is expected may be a pipe that nobody writes into, or a device that never ends.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include "fullshard/base/bytes.h"

namespace fullshard::base {

inline constexpr int64_t kMostTextBytes = kGiB;
inline constexpr int64_t kAnyTextBytes = std::numeric_limits<int64_t>::max();

// Pipes and devices as well, up to their end: the terminal, or what another program says.
enum class TextFrom { files, anything };

// Nothing when the file is not there; an Error of kind input when it cannot be read: it is a
// folder, no regular file, or longer than `most_bytes`.
std::optional<std::string> find_text_file(const std::string& path,
                                          int64_t most_bytes = kMostTextBytes,
                                          TextFrom from = TextFrom::files);
// The same, and an Error when it is not there.
std::string read_text_file(const std::string& path, int64_t most_bytes = kMostTextBytes,
                           TextFrom from = TextFrom::files);

}  // namespace fullshard::base
