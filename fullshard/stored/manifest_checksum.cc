// SPDX-License-Identifier: Apache-2.0
#include "fullshard/stored/manifest_checksum.h"

#include <fmt/format.h>

#include "fullshard/base/crc32c.h"
#include "fullshard/formats/input_error.h"

namespace fullshard::stored {
namespace {

std::string tail_of(std::string_view summed) {
  return fmt::format(",\"{}\":\"{:08x}\"}}\n", kManifestChecksum,
                     base::crc32c(summed.data(), static_cast<int64_t>(summed.size())));
}

}  // namespace

std::string with_manifest_checksum(std::string object) {
  object.erase(object.rfind('}'));
  return object + tail_of(object);
}

bool check_manifest_checksum(std::string_view text, const std::string& where) {
  static const size_t kTailBytes = tail_of("").size();
  if (text.size() < kTailBytes) return false;
  const auto summed = text.substr(0, text.size() - kTailBytes);
  const auto tail = text.substr(summed.size());
  if (!tail.starts_with(fmt::format(",\"{}\":", kManifestChecksum))) return false;
  formats::check_input(
      tail == tail_of(summed),
      "{}: its checksum does not match its contents; the file is damaged or was changed: "
      "copy it again or use another checkpoint",
      where);
  return true;
}

}  // namespace fullshard::stored
