// SPDX-License-Identifier: Apache-2.0
// Replaces zstd_decompressor.cc in builds without libzstd.
#include "fullshard/base/error.h"
#include "fullshard/data/text/decompressor.h"

namespace fullshard::data {

std::unique_ptr<Decompressor> open_zstd(const std::string& path) {
  fail_as(ErrorKind::input, "{}: this build has no libzstd; unpack the file with unzstd", path);
}

}  // namespace fullshard::data
