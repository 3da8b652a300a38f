// SPDX-License-Identifier: Apache-2.0
// Memory that slots are read into and written from.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>

#include "fullshard/base/bytes.h"
#include "fullshard/disk/direct_buffer.h"
#include "fullshard/tiers/slot_file.h"

namespace fullshard::testing {

inline constexpr int64_t kPage = 4096;

inline disk::DirectBuffer buffer_of(int64_t bytes, char fill) {
  disk::DirectBuffer buffer;
  buffer.reserve(round_up(std::max<int64_t>(bytes, 1), kPage));
  std::memset(buffer.data(), fill, static_cast<size_t>(round_up(bytes, kPage)));
  return buffer;
}

inline std::string read_slot(tiers::SlotFile& file, int slot, int64_t bytes) {
  disk::DirectBuffer found = buffer_of(bytes, '?');
  file.wait(file.read({.slot = slot, .bytes = bytes}, found.data()));
  return {found.data(), static_cast<size_t>(bytes)};
}

}  // namespace fullshard::testing
