// SPDX-License-Identifier: Apache-2.0
#include "fullshard/data/text/decompressor.h"

#include "fullshard/base/error.h"

namespace fullshard::data {

Compression compression_of(std::string_view path) {
  if (path.ends_with(".gz")) return Compression::gzip;
  if (path.ends_with(".zst")) return Compression::zstd;
  return Compression::none;
}

std::string_view without_compression(std::string_view path) {
  switch (compression_of(path)) {
    case Compression::gzip:
      return path.substr(0, path.size() - 3);
    case Compression::zstd:
      return path.substr(0, path.size() - 4);
    case Compression::none:
      break;
  }
  return path;
}

std::unique_ptr<Decompressor> open_compressed(const std::string& path) {
  check(compression_of(path) != Compression::none, "{}: is not compressed", path);
  return compression_of(path) == Compression::gzip ? open_gzip(path) : open_zstd(path);
}

}  // namespace fullshard::data
