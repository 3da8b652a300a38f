// SPDX-License-Identifier: Apache-2.0
// The checksum of zip archives (CRC-32, polynomial 0xEDB88320).
#pragma once

#include <cstdint>

namespace fullshard::formats {

// Continues `before`, the checksum of the preceding bytes, over these; begin with 0.
uint32_t crc32(uint32_t before, const void* data, int64_t bytes);
// The same without special processor instructions.
uint32_t crc32_by_tables(uint32_t before, const void* data, int64_t bytes);

// The checksum of two adjacent ranges of bytes, given the checksum of each.
uint32_t crc32_of_both(uint32_t first, uint32_t second, int64_t second_bytes);

}  // namespace fullshard::formats
