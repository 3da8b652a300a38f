// The checksum of zip archives (CRC-32, polynomial 0xEDB88320).
#pragma once

#include <cstdint>

namespace fullshard {

// Of the bytes before these, and these: begin with 0.
uint32_t crc32(uint32_t before, const void* data, int64_t bytes);

}  // namespace fullshard
