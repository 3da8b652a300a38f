// SPDX-License-Identifier: Apache-2.0
// Compressed files, read from beginning to end and never whole in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace fullshard::data {

enum class Compression { none, gzip, zstd };

// By the ending: .gz, .zst. The path without it tells the kind of the content.
Compression compression_of(std::string_view path);
std::string_view without_compression(std::string_view path);

// Belongs to one thread. Errors are of the kind `input`: wrong format, damaged, cut off.
class Decompressor {
 public:
  virtual ~Decompressor() = default;
  // Up to `size` bytes of the content; 0 at its end.
  virtual size_t read(char* bytes, size_t size) = 0;
  virtual int64_t consumed() const = 0;  // bytes of the file so far
};

std::unique_ptr<Decompressor> open_compressed(const std::string& path);

// One of each pair is compiled: the one with the library, or the one that says that this build has
// none.
std::unique_ptr<Decompressor> open_gzip(const std::string& path);
std::unique_ptr<Decompressor> open_zstd(const std::string& path);

}  // namespace fullshard::data
