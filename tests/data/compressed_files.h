// SPDX-License-Identifier: Apache-2.0
// Compressed bytes, by the libraries that read them.
#pragma once

#include <string>

#if FULLSHARD_HAS_ZLIB
#include <zlib.h>
#endif
#if FULLSHARD_HAS_ZSTD
#include <zstd.h>
#endif

namespace fullshard::testing {

#if FULLSHARD_HAS_ZLIB
inline std::string gzipped(const std::string& text) {
  z_stream stream{};
  constexpr int kGzip = 15 + 16;  // the largest window, with gzip's header
  ::deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, kGzip, 8, Z_DEFAULT_STRATEGY);
  std::string bytes(::deflateBound(&stream, text.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(bytes.data());
  stream.avail_out = static_cast<uInt>(bytes.size());
  ::deflate(&stream, Z_FINISH);
  bytes.resize(stream.total_out);
  ::deflateEnd(&stream);
  return bytes;
}
#endif

#if FULLSHARD_HAS_ZSTD
inline std::string zstd_compressed(const std::string& text) {
  std::string bytes(::ZSTD_compressBound(text.size()), '\0');
  bytes.resize(::ZSTD_compress(bytes.data(), bytes.size(), text.data(), text.size(), 3));
  return bytes;
}
#endif

}  // namespace fullshard::testing
