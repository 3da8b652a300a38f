// SPDX-License-Identifier: Apache-2.0
// Replaces gzip_decompressor.cc in builds without zlib.
#include "fullshard/base/error.h"
#include "fullshard/data/text/decompressor.h"

namespace fullshard::data {

std::unique_ptr<Decompressor> open_gzip(const std::string& path) {
  fail_as(ErrorKind::input, "{}: this build has no zlib; unpack the file with gunzip", path);
}

}  // namespace fullshard::data
