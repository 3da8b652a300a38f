// SPDX-License-Identifier: Apache-2.0
// The entries of a zip archive, as far as torch.save uses the format: stored, not compressed.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "fullshard/formats/file_handle.h"

namespace fullshard::formats {

struct ZipEntry {
  int64_t offset = 0;  // of its data, in the file
  int64_t bytes = 0;   // of its data, as they lie in the file
  int64_t method = 0;  // 0: stored as it is
  bool is_encrypted = false;
  uint32_t checksum = 0;  // CRC-32 of the data before they were compressed
};

// The archive may be a part of a file: bytes [begin, begin + length). Its directory is read and
// checked whole, with zip64; no two entries share a byte or a name.
class ZipArchive {
 public:
  ZipArchive(const FileHandle& file, int64_t begin, int64_t length);

  const std::map<std::string, ZipEntry>& entries() const { return entries_; }
  // False: the writer left them out, as torch.serialization.set_crc32_options(False) does.
  bool has_checksums() const;

  // Null if there is no such entry; an error if it is compressed or encrypted.
  const ZipEntry* find(const std::string& name) const;

 private:
  std::string path_;
  std::map<std::string, ZipEntry> entries_;
};

}  // namespace fullshard::formats
