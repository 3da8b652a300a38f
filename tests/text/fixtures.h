// SPDX-License-Identifier: Apache-2.0
// The contents of tests/fixtures/text/: strings, and per family a tokenizer with the ids that the
// Python package gives them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tests/files.h"

namespace fullshard::testing {

inline std::string fixture(const std::string& name) {
  return std::string(FULLSHARD_SOURCE_DIR "/tests/fixtures/text/") + name;
}

// Numbers and bytes, one after the other.
class Recording {
 public:
  explicit Recording(const std::string& path) : bytes_(read_file(path)) {}

  bool done() const { return position_ >= bytes_.size(); }
  uint32_t varint() {
    uint32_t value = 0;
    for (int shift = 0; position_ < bytes_.size(); shift += 7) {
      const auto byte = static_cast<unsigned char>(bytes_[position_++]);
      value |= uint32_t{byte & 127U} << shift;
      if (byte < 128) break;
    }
    return value;
  }
  std::string take(size_t count) {
    position_ += count;
    return bytes_.substr(position_ - count, count);
  }
  uint32_t two_bytes() {
    const std::string two = take(2);
    return static_cast<unsigned char>(two[0]) | uint32_t{static_cast<unsigned char>(two[1])} << 8;
  }

 private:
  std::string bytes_;
  size_t position_ = 0;
};

inline std::vector<std::string> recorded_strings() {
  std::vector<std::string> strings;
  for (Recording recording(fixture("strings.bin")); !recording.done();) {
    strings.push_back(recording.take(recording.varint()));
  }
  return strings;
}

struct Recorded {
  std::vector<int32_t> ids;
  uint32_t decoded = 0;  // digest() of the text that they decode to
};

inline std::vector<Recorded> recorded_ids(const std::string& family) {
  std::vector<Recorded> result;
  for (Recording recording(fixture(family + "/ids.bin")); !recording.done();) {
    Recorded one;
    one.ids.resize(recording.varint());
    for (auto& id : one.ids) id = static_cast<int32_t>(recording.varint());
    one.decoded = recording.two_bytes();
    result.push_back(one);
  }
  return result;
}

// FNV-1a, folded to 16 bits.
inline uint32_t digest(std::string_view text) {
  uint32_t value = 0x811C9DC5U;
  for (const char byte : text) value = (value ^ static_cast<unsigned char>(byte)) * 0x01000193U;
  return value >> 16 ^ (value & 0xFFFFU);
}

}  // namespace fullshard::testing
