// SPDX-License-Identifier: Apache-2.0
// CRC-32C (Castagnoli, as in iSCSI and ext4): the checksum of checkpoint files and event files.
#pragma once

#include <cstdint>

namespace fullshard::base {

// Of `bytes` bytes; `crc` is that of what came before. By the processor's instruction where it has
// one, by tables elsewhere, with the same result.
uint32_t crc32c(const void* data, int64_t bytes, uint32_t crc = 0);
uint32_t crc32c_by_tables(const void* data, int64_t bytes, uint32_t crc = 0);

}  // namespace fullshard::base
