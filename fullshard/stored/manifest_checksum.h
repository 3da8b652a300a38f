// SPDX-License-Identifier: Apache-2.0
// The checksum that a manifest carries of itself, as its last field:
//
//     {"format": …, …,"manifest_checksum":"1b2c3d4e"}\n
//     |<--- CRC-32C --->|
//
// It sums the bytes before the comma, so that nothing in a manifest changes unseen.
#pragma once

#include <string>
#include <string_view>

namespace fullshard::stored {

inline constexpr const char* kManifestChecksum = "manifest_checksum";
// For people, about a manifest of version 1.
inline constexpr const char* kNoManifestChecksum =
    "its manifest.json was written by an older Fullshard and carries no checksum: a change in it "
    "would not be noticed; the next save adds one";

// The text of a JSON object with at least one field, with the checksum added to it.
std::string with_manifest_checksum(std::string object);

// False: it has none at its end. A wrong one is an error of the kind input that begins with
// `where`.
bool check_manifest_checksum(std::string_view text, const std::string& where);

}  // namespace fullshard::stored
