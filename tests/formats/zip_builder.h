// SPDX-License-Identifier: Apache-2.0
// Zip archives made byte by byte, so that each field can be wrong.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace fullshard::testing {

inline std::string little(uint64_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text += static_cast<char>(i < 8 ? value >> (8 * i) & 0xFF : 0);
  return text;
}

struct ZipPiece {
  std::string name;
  std::string data;
};

// With zip64 every size and offset stands in the wide fields, as in archives beyond 4 GiB.
inline std::string make_zip(const std::vector<ZipPiece>& pieces, bool is_wide = false,
                            const std::string& comment = "") {
  std::string bytes;
  std::string directory;
  for (const auto& [name, data] : pieces) {
    const uint64_t offset = bytes.size();
    const std::string sizes = little(0, 4) + little(data.size(), 4) + little(data.size(), 4);
    bytes += "PK\x03\x04" + little(20, 2) + little(0, 8) + sizes + little(name.size(), 2) +
             little(3, 2) + name + "pad" + data;
    const std::string wide = little(7, 2) + little(1, 2) + "?" + little(1, 2) + little(24, 2) +
                             little(data.size(), 8) + little(data.size(), 8) + little(offset, 8);
    const std::string hidden(4, '\xff');
    directory += "PK\x01\x02" + little(20, 2) + little(20, 2) + little(0, 8) + little(0, 4) +
                 (is_wide ? hidden + hidden : little(data.size(), 4) + little(data.size(), 4)) +
                 little(name.size(), 2) + little(is_wide ? wide.size() : 0, 2) + little(0, 10) +
                 (is_wide ? hidden : little(offset, 4)) + name + (is_wide ? wide : "");
  }
  const uint64_t begin = bytes.size();
  bytes += directory;
  if (is_wide) {
    const uint64_t record = bytes.size();
    bytes += "PK\x06\x06" + little(44, 8) + little(45, 2) + little(45, 2) + little(0, 8) +
             little(pieces.size(), 8) + little(pieces.size(), 8) + little(directory.size(), 8) +
             little(begin, 8);
    bytes += "PK\x06\x07" + little(0, 4) + little(record, 8) + little(1, 4);
  }
  return bytes + "PK\x05\x06" + little(0, 4) + little(pieces.size(), 2) + little(pieces.size(), 2) +
         little(directory.size(), 4) + little(is_wide ? 0xFFFFFFFF : begin, 4) +
         little(comment.size(), 2) + comment;
}

}  // namespace fullshard::testing
